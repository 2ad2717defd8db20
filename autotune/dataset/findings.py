"""What reading all rows found: counts by what was remarked, and what has to be read or left out."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.core.profile import Notice
from autotune.dataset.switches import Switches


@dataclass
class Survey:
    """Gather what reading all rows found.

    Args:
        rows: rows read.
        aliases: whether roles need reading into those of a chat template.
        calls: whether there are turns that are function calls.
        plain_tools: whether TRL can take the ``tools`` column as it is.
        plain_messages: whether all messages are role and text, nothing else.
        parts: whether content is given as lists of text parts.
        odd_part: type of the first part that is no text and the row it is in, None without any.
        history: rows with earlier turns in a column of their own.
        switches: fields with which other tools switch the loss of a message off.
        system: rows whose conversation lacks the system text that a column of its own holds.
        in_the_way: columns that TRL would read but the layout does not mean.
        desirable: rows rated true (KTO).
        counts: rows or turns by what was remarked, with the first row.
    """

    rows: int = 0
    aliases: bool = False
    calls: bool = False
    plain_tools: bool = True
    plain_messages: bool = True
    parts: bool = False
    odd_part: tuple[str, int] | None = None
    history: int = 0
    switches: Switches = field(default_factory=Switches)
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
