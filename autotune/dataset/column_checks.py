"""Stops at columns and values no run can train on: nulls, other kinds, ratings and margins.

One column or one value at a time; what stands in conversations is read in ``survey``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.errors import BadInput
from autotune.dataset.layouts import Layout
from autotune.dataset.scan import KIND_WORDS, Column, kind_of


def check_filled(column: Column, layout: Layout, rows: int) -> None:
    """Stop at nulls and empty lists where the layout needs a value."""
    if column.nulls is not None and column.name not in layout.may_be_null:
        raise BadInput(
            f"column {column.name!r} is null in {column.nulls.count} of {rows} rows, "
            f"first in row {column.nulls.first + 1} (rows count from 1).",
            "Fill those rows in or remove them.",
        )
    if column.empties is not None and column.kind != "ids":
        raise BadInput(
            f"column {column.name!r} is an empty list in {column.empties.count} of {rows} rows, "
            f"first in row {column.empties.first + 1} (rows count from 1).",
            "Remove those rows: there is nothing in them to train on.",
        )


def check_margin(margin: Column, layout: Layout, rows: int) -> None:
    """Stop at margins that are no numbers: Reward trains with them wherever it finds the column."""
    check_filled(margin, layout, rows)
    if set(margin.kinds) != {"number"}:
        raise BadInput(
            f"column 'margin' holds {KIND_WORDS[margin.kind]}, and Reward trains with the number "
            "in it.",
            "Write numbers, or rename the column if it means something else.",
        )


def check_token_columns(columns: Mapping[str, Column], names: tuple[str, ...]) -> None:
    """Stop at masks and labels beside token ids that are not one number per token."""
    for name in names:
        if name in columns and columns[name].kind not in ("ids", "flags", "list"):
            raise BadInput(
                f"column {name!r} beside input_ids holds {KIND_WORDS[columns[name].kind]}, "
                "expected a list of whole numbers, one per token.",
                "Rename or remove that column if it means something else.",
            )


def check_kind(column: Column, value: Any, row: int) -> None:
    """Stop at text among conversations or the other way round, which a sample can have missed."""
    if column.name in ("tools", "system", "history") or not isinstance(value, (str, list, dict)):
        return
    if isinstance(value, str) != (column.kind == "text"):
        raise BadInput(
            f"column {column.name!r} holds {KIND_WORDS[column.kind]} in most rows but "
            f"{KIND_WORDS[kind_of(value)]} in row {row + 1} (rows count from 1).",
            "Every row must hold the same kind of value: correct or remove those rows.",
        )


def check_history(value: Any, row: int) -> bool:
    """Return whether a row has earlier turns; stop at what is no pair of question and answer."""
    for pair in value or ():
        if len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise BadInput(
                f"row {row + 1}: column 'history' holds a list of {len(pair)} values as a turn, "
                "expected a question and an answer, both text (rows count from 1).",
                "Correct that row, or rename the column if it means something else.",
            )
    return bool(value)


def check_pictures(in_the_way: tuple[str, ...]) -> None:
    """Stop at empty columns of pictures beside token ids: TRL takes such rows for pictures."""
    pictures = [name for name in in_the_way if name in ("image", "images")]
    if pictures:
        raise BadInput(
            f"column {pictures[0]!r} beside input_ids is empty in every row, and TRL takes rows "
            "with such a column for a vision data set.",
            "Remove the column.",
        )


def desirable(label: Any, row: int) -> bool:
    """Return whether a rating is true; stop at what is neither true nor false."""
    if label not in (0, 1):
        raise BadInput(
            f"row {row + 1}: column 'label' is {label!r}, expected true or false (or 1 and 0).",
            "Decide from which value on a row counts as desirable, and write true or false.",
        )
    return bool(label)
