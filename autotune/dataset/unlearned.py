"""Says which texts of the rows are not learned, counted and with the first row; stops where the
answers themselves are gone.

What became of the texts is found out in ``survival``.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotune.core.errors import BadInput
from autotune.core.profile import Notice
from autotune.dataset.leaves import Place
from autotune.dataset.survival import Trace

_COUNT = "(Rows count from 1.)"
#: From this share of the rows on, answers that are gone leave nothing worth measuring.
_MOST_GONE = 0.5


def check_answers(traces: Iterable[Trace], rows: int, read: frozenset[str]) -> None:
    """Stop where the answers of most rows are not in the training text.

    Args:
        traces: what became of the texts.
        rows: rows given.
        read: columns of the layout.

    Raises:
        BadInput: with the count, the first row and the remedy.
    """
    for trace in traces:
        place = trace.place
        gone = trace.fate == "lost" and place.is_main and place.is_answer and place.column in read
        if gone and trace.rows >= _MOST_GONE * rows:
            raise BadInput(
                f"{trace.rows} of {rows} rows: {place} is not in the training text, first row "
                f"{trace.first + 1} (rows count from 1): {_why(place)}.",
                "Set chat_template_path to a template that renders it.",
            )


def unlearned(
    traces: Iterable[Trace], rows: int, read: frozenset[str], layout: str
) -> tuple[Notice, ...]:
    """Return a counted remark for every place whose texts are not learned.

    Args:
        traces: what became of the texts.
        rows: rows given.
        read: columns of the layout.
        layout: its name.
    """
    traces = tuple(traces)
    beside = [t for t in traces if t.place.column not in read and t.fate in ("lost", "partly")]
    within = [t for t in traces if t.place.column in read]
    learned = {t.place for t in within if t.fate == "learned"}
    found = [*_columns(beside, rows, layout)]
    for trace in within:
        if trace.fate in ("lost", "partly"):
            found.append(_left_out(trace, rows))
        elif trace.fate == "masked" and trace.place not in learned:
            found.append(_never_trained(trace, rows))
    found += _changed([t for t in within if t.fate == "changed"], rows)
    return tuple(found)


def _columns(beside: list[Trace], rows: int, layout: str) -> list[Notice]:
    """Name the columns beside the layout in one sentence, the one with most text first."""
    merged: dict[str, Trace] = {}
    for trace in beside:
        name = trace.place.column
        other = merged.get(name, Trace(trace.place, trace.fate, 0, trace.first, 0))
        merged[name] = Trace(
            trace.place,
            trace.fate,
            trace.rows + other.rows,
            min(trace.first, other.first),
            trace.characters + other.characters,
        )
    if not merged:
        return []
    ordered = sorted(merged.values(), key=lambda trace: -trace.characters)
    named = ", ".join(
        f"{t.place.column!r} ({t.rows} of {rows} rows, first row {t.first + 1}, "
        f"{t.characters:,} characters)"
        for t in ordered
    )
    one = len(ordered) == 1
    remedy = (
        "If one holds the prompts, rename it to 'prompt'."
        if layout == "preference with implicit prompt"
        else "What should be learned belongs into the columns that are read."
    )
    return [
        Notice(
            code="unread-columns",
            count=max(t.rows for t in ordered),
            message=f"{'column' if one else 'columns'} {named} {'is' if one else 'are'} not in the "
            f"training text, because the rows are read as {layout}. {remedy} {_COUNT}",
        )
    ]


def _left_out(trace: Trace, rows: int) -> Notice:
    whole = "whole " if trace.fate == "partly" else ""
    return Notice(
        code="unlearned-text",
        count=trace.rows,
        message=f"{trace.rows} of {rows} rows: {trace.place} is not {whole}in the training text, "
        f"first row {trace.first + 1}: {_why(trace.place)}. {_COUNT}",
    )


def _why(place: Place) -> str:
    if place.field or place.column == "tools":
        return "the chat template leaves it out"
    return "it is lost where the text becomes tokens"


def _never_trained(trace: Trace, rows: int) -> Notice:
    remedy = (
        "completion_only_loss=false trains on all of a row"
        if trace.place.column == "history"
        else "look at the loss mask: assistant_only_loss and the template's generation markers"
    )
    return Notice(
        code="unlearned-answers",
        count=trace.rows,
        message=f"{trace.rows} of {rows} rows: {trace.place} is read but never trained on, "
        f"first row {trace.first + 1}; {remedy}. {_COUNT}",
    )


def _changed(changed: list[Trace], rows: int) -> list[Notice]:
    if not changed:
        return []
    most = max(changed, key=lambda trace: trace.rows)
    return [
        Notice(
            code="changed-text",
            count=most.rows,
            message=f"{most.rows} of {rows} rows: the tokenizer does not keep {most.place} as "
            "written (lower case, other characters or unknown ones), first row "
            f"{min(t.first for t in changed if t.rows == most.rows) + 1}. {_COUNT}",
        )
    ]
