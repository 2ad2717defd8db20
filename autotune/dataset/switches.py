"""Counts the marks with which other tools switch the loss off per message or row; TRL reads none.

``loss: false``, ``weight: 0``, ``train: false`` and their kin are looked for by value, any true or
false beside a message, and by name where the value is a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.profile import Notice
from autotune.dataset.scan import Column

#: Names that say train on this; zero or false switches it off.
_ON = frozenset(
    {
        *("loss", "weight", "weights", "train", "training", "trainable", "trained", "learn"),
        *("loss_weight", "sample_weight", "loss_mask", "train_on", "train_on_turn"),
    }
)
#: Names that say leave this out; anything but zero or false switches it off.
_OFF = frozenset({"mask", "masked", "is_masked", "ignore", "no_loss"})
_COUNT = "(Rows count from 1.)"


@dataclass
class _Marks:
    """Count one field: messages switched off, answers among them, rows, the first row, values."""

    off: int = 0
    answers: int = 0
    rows: int = 0
    first: int = -1
    last: int = -1
    values: set[bool] = field(default_factory=set)


@dataclass
class Switches:
    """Gather the switches of messages."""

    found: dict[str, _Marks] = field(default_factory=dict)

    def add(self, turn: Mapping[str, Any], role: str, row: int) -> None:
        """Note what one message has.

        Args:
            turn: the message as given.
            role: its role.
            row: its row, counted from 0.
        """
        for name, value in turn.items():
            if not isinstance(value, (bool, int, float)):
                continue
            named = name.lower() in _ON or name.lower() in _OFF
            if not named and not isinstance(value, bool):
                continue
            marks = self.found.setdefault(name, _Marks())
            marks.values.add(bool(value))
            if bool(value) != (name.lower() in _OFF):
                continue
            marks.off += 1
            marks.answers += role in ("assistant", "call")
            if marks.last != row:
                marks.rows += 1
                marks.first = row if marks.first < 0 else marks.first
                marks.last = row

    def notices(self, rows: int, template: str | None) -> tuple[Notice, ...]:
        """Return a counted remark per field that is there and does nothing.

        Args:
            rows: rows given.
            template: the chat template; what it mentions is not remarked.
        """
        return tuple(
            Notice(code="unread-switch", count=marks.rows, message=_sentence(name, marks, rows))
            for name, marks in self.found.items()
            if marks.off and _matters(name, marks)
            if template is None or not re.search(rf"\b{re.escape(name)}\b", template)
        )


def _matters(name: str, marks: _Marks) -> bool:
    """Return whether the field tells messages apart, or says by its name that none is learned."""
    return name.lower() in _ON | _OFF or len(marks.values) > 1


def _sentence(name: str, marks: _Marks, rows: int) -> str:
    where = f"{marks.rows} of {rows} rows: field {name!r} of {marks.off} messages"
    if name.lower() not in _ON | _OFF:
        return (
            f"{where} is false, first row {marks.first + 1}, and true in others: TRL reads no such "
            f"field, and all of them are trained alike. {_COUNT}"
        )
    return (
        f"{where} ({marks.answers} answers) switches their loss off, first row {marks.first + 1}. "
        "TRL has no switch per message, so these messages are trained like the others. Where the "
        "last answer alone counts, give the rows as prompt and completion; else give them "
        f"tokenised, with labels of -100. {_COUNT}"
    )


def unread_weights(columns: Mapping[str, Column]) -> tuple[Notice, ...]:
    """Return a remark when rows have a weight or mask of their own.

    Args:
        columns: what each column holds.
    """
    kinds = ("number", "flag", "numbers", "flags", "ids")
    return tuple(
        Notice(
            code="unread-weight",
            count=sum(seen.count for seen in column.kinds.values()),
            message=f"column {column.name!r} is not read: TRL has no weight or loss switch per row "
            "or message, so all of them are trained alike.",
        )
        for column in columns.values()
        if column.name.lower() in _ON | _OFF and column.kind in kinds
    )
