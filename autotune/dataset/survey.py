"""Reads every row once before anything is prepared: what stops, what is counted, what must be read.

Stops are errors with the first row and a count; the rest becomes counted notices. Rows are never
changed or left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.dataset.column_checks import (
    check_filled,
    check_history,
    check_kind,
    check_margin,
    check_pictures,
    check_token_columns,
    desirable,
)
from autotune.dataset.convert import lacks_system, openings
from autotune.dataset.findings import Survey
from autotune.dataset.layouts import OBJECT, Layout, has_history, reads_text_first
from autotune.dataset.pairs import oddities
from autotune.dataset.progress import Progress, say_nothing
from autotune.dataset.scan import Column
from autotune.dataset.tools import is_plain, read_tools
from autotune.dataset.turns import read_turn

if TYPE_CHECKING:
    from datasets import Dataset

#: Columns TRL gives a meaning to wherever it finds them (trl 1.16, ``sft_trainer.py`` and kin).
TRL_COLUMNS = frozenset(
    {
        *("input_ids", "labels", "completion_mask", "assistant_masks", "seq_lengths"),
        *("prompt", "completion", "messages", "conversations", "chosen", "rejected"),
        *("tools", "chat_template_kwargs"),
        *("image", "images"),  # their presence makes it a vision data set, whatever they hold
    }
)
#: Columns that are kept beside those of any layout, as they are; Reward trains with the margin.
KEPT = ("chat_template_kwargs", "margin")
#: Columns that are read beside those of any layout.
BESIDE = ("tools", *KEPT)


def survey_rows(
    rows: Dataset,
    layout: Layout,
    columns: Mapping[str, Column],
    text_field: str,
    trainer: Trainer,
    tell: Progress = say_nothing,
) -> Survey:
    """Read every row of the layout's columns.

    Args:
        rows: the split as loaded.
        layout: the layout that was recognised.
        columns: what each column holds.
        text_field: TRL's ``dataset_text_field``.
        trainer: who trains on the rows.
        tell: told of the rows read.

    Raises:
        NotBuiltYet: messages with parts that are no text.
        BadInput: null or missing values, empty conversations, turns that cannot be read, tools
            that are not schemas, pairs without a prompt; with the first row and how many there are.
    """
    needed = layout.columns(text_field)
    found = Survey(rows=len(rows))
    for name in needed:
        check_filled(columns[name], layout, len(rows))
    if trainer is Trainer.REWARD and "margin" in columns:
        check_margin(columns["margin"], layout, len(rows))
    found.in_the_way = _in_the_way(layout, columns, text_field, trainer)
    system = _opening(layout, columns)
    beside = ["tools", *(["system"] if system else []), *has_history(layout, columns)]
    read = [n for n in (*needed, *layout.optional, *beside) if n in columns]
    if layout.name == "tokenised":
        check_token_columns(columns, layout.optional)
        check_pictures(found.in_the_way)
        return found
    start = 0
    for batch in rows.select_columns(read).iter(batch_size=1000):
        tell("read", start, len(rows))
        for name in read:
            for offset, value in enumerate(batch[name]):
                check_kind(columns[name], value, start + offset)
                _read(found, name, value, start + offset, layout)
        size = len(batch[read[0]])
        if "chosen" in layout.needs:
            for offset in range(size):
                pair = {name: batch[name][offset] for name in needed}
                for code in oddities(pair, start + offset, layout, trainer):
                    found.remark(code, start + offset)
        if system is not None:
            said = zip(batch["system"], batch[system], strict=True)
            found.system += sum(bool(text) and lacks_system(turns) for text, turns in said)
        if "label" in read:
            for offset, label in enumerate(batch["label"]):
                found.desirable += desirable(label, start + offset)
        start += size
    _check_answers_differ(found)
    _remark_one_sided(found, "label" in read)
    return found


def _in_the_way(
    layout: Layout, columns: Mapping[str, Column], text_field: str, trainer: Trainer
) -> tuple[str, ...]:
    """Return the columns that TRL would read but the layout does not mean."""
    keep = {*layout.columns(text_field), *layout.optional, *BESIDE}
    taken = [name for name in columns if name in TRL_COLUMNS and name not in keep]
    if trainer is Trainer.SFT and reads_text_first(layout, columns, text_field):
        taken.append(text_field)
    return tuple(dict.fromkeys(taken))


def _opening(layout: Layout, columns: Mapping[str, Column]) -> str | None:
    """Return the column of the conversation that a ``system`` column's texts belong before."""
    beside = columns.get("system")
    if beside is None or beside.kind != "text" or not layout.is_chat(columns):
        return None
    name = openings(layout.needs)[0]
    return name if name in layout.needs else None


def _check_answers_differ(found: Survey) -> None:
    count, _ = found.counts.get("same-answers", (0, 0))
    if count and count == found.rows:
        raise BadInput(
            f"all {count} rows have the same chosen and rejected answer: there is nothing to "
            "prefer, and no gradient.",
            "Check how the two columns were made.",
        )


def _remark_one_sided(found: Survey, rated: bool) -> None:
    if rated and found.desirable in (0, found.rows):
        found.counts["one-sided-labels"] = (found.rows, 0)


def _read(found: Survey, name: str, value: Any, row: int, layout: Layout) -> None:
    """Read one value of one row."""
    if name == "system":
        return
    if name == "history":
        found.history += check_history(value, row)
        return
    if layout.needs.get(name) == OBJECT:
        found.plain_messages = False
        return
    if name == "tools":
        read_tools(value, row)
        found.plain_tools = found.plain_tools and is_plain(value)
    elif isinstance(value, (list, dict)):
        turns = [value] if isinstance(value, dict) else value
        spoke = False
        for number, turn in enumerate(turns):
            where = f"row {row + 1}: turn {number + 1} of column {name!r}"
            spoke = read_turn(found, turn, row, where) == "assistant" or spoke
        if name in ("messages", "conversations") and layout.name in ("messages", "conversations"):
            if not turns:
                raise BadInput(f"row {row + 1}: column {name!r} is an empty list.")
            if not spoke:
                found.remark("no-assistant-turn", row)
    elif isinstance(value, str) and not value.strip():
        _remark_empty_text(found, name, row, layout)


def _remark_empty_text(found: Survey, name: str, row: int, layout: Layout) -> None:
    if name in ("prompt", "instruction"):
        found.remark("empty-prompt", row)
    elif name in ("chosen", "rejected"):
        found.remark(f"empty-{name}", row)
    elif name in ("completion", "output"):
        found.remark("empty-completion", row)
    elif layout.name == "text":
        found.remark("empty-text", row)
