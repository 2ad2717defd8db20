"""Reads every row once before anything is prepared: what stops, what is counted, what must be read.

Stops are errors with the first row and a count; the rest becomes counted notices. Rows are never
changed or left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.core.profile import Notice
from autotune.dataset.column_checks import (
    check_filled,
    check_kind,
    check_margin,
    check_token_columns,
    desirable,
)
from autotune.dataset.convert import lacks_system, openings
from autotune.dataset.layouts import OBJECT, Layout
from autotune.dataset.pairs import oddities
from autotune.dataset.progress import Progress, say_nothing
from autotune.dataset.roles import ROLES, needs_reading, parse_calls
from autotune.dataset.scan import KIND_WORDS, Column, kind_of
from autotune.dataset.tools import is_plain, read_tools

if TYPE_CHECKING:
    from datasets import Dataset

#: Columns TRL gives a meaning to wherever it finds them (trl 1.16, ``sft_trainer.py`` and kin).
TRL_COLUMNS = frozenset(
    {
        *("input_ids", "labels", "completion_mask", "assistant_masks", "seq_lengths"),
        *("prompt", "completion", "messages", "conversations", "chosen", "rejected"),
        *("tools", "chat_template_kwargs"),
    }
)
#: Columns that are kept beside those of any layout, as they are; Reward trains with the margin.
KEPT = ("chat_template_kwargs", "margin")
#: Columns that are read beside those of any layout.
BESIDE = ("tools", *KEPT)


@dataclass
class Survey:
    """Gather what reading all rows found.

    Args:
        rows: rows read.
        aliases: whether roles need reading into those of a chat template.
        calls: whether there are turns that are function calls.
        tool_calls: messages with ``tool_calls`` and the first row with one, None without any.
        plain_tools: whether TRL can take the ``tools`` column as it is.
        plain_messages: whether all messages are role and text, nothing else.
        system: rows whose conversation lacks the system text that a column of its own holds.
        in_the_way: columns that TRL would read but the layout does not mean.
        desirable: rows rated true (KTO).
        counts: rows or turns by what was remarked, with the first row.
    """

    rows: int = 0
    aliases: bool = False
    calls: bool = False
    tool_calls: tuple[int, int] | None = None
    plain_tools: bool = True
    plain_messages: bool = True
    system: int = 0
    in_the_way: tuple[str, ...] = ()
    desirable: int = 0
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)

    def remark(self, code: str, row: int) -> None:
        """Count one more of a sort."""
        count, first = self.counts.get(code, (0, row))
        self.counts[code] = (count + 1, first)

    def notices(self) -> tuple[Notice, ...]:
        """Return one counted sentence per remark."""
        return tuple(
            Notice(code=code, message=_sentence(code, count, first, self.rows), count=count)
            for code, (count, first) in self.counts.items()
        )


_SENTENCES = {
    "empty-assistant-turn": "{n} assistant turns are empty, first in row {row}: "
    "the model is trained to say nothing there.",
    "empty-turn": "{n} user, system or tool turns are empty, first in row {row}.",
    "empty-completion": "{n} of {rows} rows have an empty completion, first row {row}.",
    "empty-chosen": "{n} of {rows} rows have an empty chosen answer, first row {row}.",
    "empty-rejected": "{n} of {rows} rows have an empty rejected answer, first row {row}.",
    "empty-prompt": "{n} of {rows} rows have an empty prompt, first row {row}.",
    "empty-text": "{n} of {rows} rows have an empty text, first row {row}: "
    "only the end token is trained on there.",
    "no-assistant-turn": "{n} of {rows} conversations have no assistant turn, first row {row}.",
    "unread-call": "{n} function calls are not JSON with a name and stay as text, "
    "first in row {row}.",
    "one-sided-labels": "all {rows} rows have the same label: KTO compares desirable rows with "
    "undesirable ones, and here one of the two is missing.",
    "same-answers": "{n} of {rows} rows have the same chosen and rejected answer, first row {row}.",
    "no-prompt": "{n} of {rows} rows have no prompt, first row {row}: there is no prompt column, "
    "and chosen and rejected have no beginning in common that could be it.",
    "repeated-prompt": "{n} of {rows} rows repeat the whole prompt at the beginning of chosen and "
    "rejected, first row {row}: the model sees it twice.",
}


def _sentence(code: str, count: int, first: int, rows: int) -> str:
    text = _SENTENCES[code].format(n=count, row=first + 1, rows=rows)
    return f"{text} (Rows count from 1.)"


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
        BadInput: null or missing values, empty conversations, turns that cannot be read, tools
            that are not schemas, pairs without a prompt; with the first row and how many there are.
    """
    needed = layout.columns(text_field)
    found = Survey(rows=len(rows))
    for name in needed:
        check_filled(columns[name], layout, len(rows))
    if trainer is Trainer.REWARD and "margin" in columns:
        check_margin(columns["margin"], layout, len(rows))
    keep = {*needed, *layout.optional, *BESIDE}
    found.in_the_way = tuple(n for n in rows.column_names if n in TRL_COLUMNS and n not in keep)
    system = _opening(layout, columns)
    beside = ("tools",) if system is None else ("tools", "system")
    read = [n for n in (*needed, *layout.optional, *beside) if n in columns]
    if layout.name == "tokenised":
        check_token_columns(columns, layout.optional)
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
            spoke = _read_turn(found, turn, row, where) == "assistant" or spoke
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


def _read_turn(found: Survey, turn: Any, row: int, where: str) -> str:
    """Read one turn and return the role it has for a chat template."""
    speaker, content, from_value = _checked_turn(turn, where)
    role = ROLES.get(str(speaker).lower(), str(speaker))
    calls = turn.get("tool_calls")
    if from_value or needs_reading(speaker):
        found.aliases = True
    if calls:
        count, first = found.tool_calls or (0, row)
        found.tool_calls = (count + 1, first)
    extra = [k for k, v in turn.items() if v is not None and k not in _PLAIN_KEYS]
    if extra or role == "call" or isinstance(content, list):
        found.plain_messages = False
    if role == "call":
        found.calls = True
        if parse_calls(content) is None:
            found.remark("unread-call", row)
        return "assistant"
    if not content or (isinstance(content, str) and not content.strip()):
        if role != "assistant":
            found.remark("empty-turn", row)
        elif not calls:
            found.remark("empty-assistant-turn", row)
    return role


def _checked_turn(turn: Any, where: str) -> tuple[Any, Any, bool]:
    """Return speaker, content and whether they came as from/value; stop where they are not so."""
    if not isinstance(turn, dict):
        raise BadInput(f"{where} is {KIND_WORDS[kind_of(turn)]}, expected a message.")
    from_value = "from" in turn and "value" in turn
    # A turn that calls tools may have no content; any other would be trained as an empty one.
    silent = "content" not in turn and "tool_calls" not in turn
    if not from_value and ("role" not in turn or silent):
        raise BadInput(
            f"{where} has the keys {', '.join(map(repr, turn))}, expected 'role' and 'content' "
            "(or 'from' and 'value')."
        )
    speaker = turn["from"] if from_value else turn["role"]
    content = turn["value"] if from_value else turn.get("content")
    if speaker is None:
        raise BadInput(f"{where} has null as its {'from' if from_value else 'role'}.")
    if content is not None and not isinstance(content, (str, list)):
        raise BadInput(f"{where} has {KIND_WORDS[kind_of(content)]} as its content, expected text.")
    return speaker, content, from_value


_PLAIN_KEYS = ("role", "content", "from", "value")
