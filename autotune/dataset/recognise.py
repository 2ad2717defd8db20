"""Finds the layout of the rows for a trainer, or says why there is none and what would be one.

Decides from what every column holds over all rows, never from the first row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from autotune.core.errors import BadInput, NotBuiltYet
from autotune.core.job import Trainer
from autotune.dataset.layouts import LAYOUTS, Layout, accepted
from autotune.dataset.scan import KIND_WORDS, SCANNED_ROWS, Column, scan_columns

if TYPE_CHECKING:
    from datasets import Dataset

#: What people call columns, by the name a layout has for them.
_SYNONYMS = {
    "text": ("content", "document", "sentence", "body", "passage", "article"),
    "messages": ("conversation", "dialogue", "dialog", "chat", "turns", "message", "history"),
    "prompt": ("question", "query", "instruction", "input", "problem", "source"),
    "completion": ("answer", "response", "output", "target", "solution", "reply"),
    "chosen": ("preferred", "accepted", "positive", "better", "win"),
    "rejected": ("dispreferred", "refused", "negative", "worse", "lose"),
    "label": ("kto_tag", "rating", "score", "feedback", "thumbs"),
    "input_ids": ("tokens", "ids", "token_ids"),
}
_PICTURES = ("image", "images")
_CHAT_COLUMNS = ("messages", "conversations", "prompt", "completion", "chosen", "rejected")


def recognise(
    rows: Dataset, trainer: Trainer, text_field: str, scanned_rows: int = SCANNED_ROWS
) -> tuple[Layout, dict[str, Column]]:
    """Return the layout of the rows and what each column holds.

    Args:
        rows: the split as loaded.
        trainer: decides which layouts are accepted.
        text_field: TRL's ``dataset_text_field``.
        scanned_rows: rows of a free-form column that are looked into.

    Raises:
        BadInput: no accepted layout, or a column of it that holds different kinds of value.
        NotBuiltYet: rows with images.
    """
    columns = scan_columns(rows, scanned_rows)
    for name in _PICTURES:
        if name in columns:
            _check_no_pictures(columns[name], rows)
    for layout in accepted(trainer):
        if layout.matches(columns, text_field):
            _check_one_kind(layout, columns, text_field)
            return layout, columns
    raise _unrecognised(columns, trainer, text_field)


def _check_no_pictures(column: Column, rows: Dataset) -> None:
    """Stop at pictures; rows of text alone often have the column, with nothing in it."""
    blank = column.kind == "text" and not any(rows[column.name])
    if not column.kinds or blank:
        return
    some = sum(seen.count for seen in column.kinds.values())
    first = min(seen.first for seen in column.kinds.values())
    raise NotBuiltYet(
        f"rows with images are not supported yet: column {column.name!r} has some in {some} of "
        f"{len(rows)} rows, first in row {first + 1} (rows count from 1)."
    )


def _check_one_kind(layout: Layout, columns: Mapping[str, Column], text_field: str) -> None:
    for name in (*layout.columns(text_field), *layout.optional):
        if name not in columns or len(columns[name].kinds) < 2:
            continue
        (kind, most), (other, odd) = list(columns[name].kinds.items())[:2]
        raise BadInput(
            f"column {name!r} holds {KIND_WORDS[kind]} in {most.count} rows "
            f"but {KIND_WORDS[other]} in {odd.count}, first in row {odd.first + 1} "
            "(rows count from 1).",
            "Every row must hold the same kind of value: correct or remove those rows.",
        )


def _unrecognised(columns: Mapping[str, Column], trainer: Trainer, text_field: str) -> BadInput:
    """Say what was found, what is accepted, what comes closest, and how to get there."""
    for name in _CHAT_COLUMNS:
        if name in columns and columns[name].kind in ("objects", "object"):
            return _unknown_keys(columns[name])
    choices = accepted(trainer)
    wanted = (" + ".join(layout.columns(text_field)) for layout in choices)
    shown = "; ".join(dict.fromkeys(wanted))
    found = ", ".join(f"{c.name} ({KIND_WORDS[c.kind]})" for c in columns.values())
    message = (
        f"the data set's columns do not fit trl {trainer.value}. Found: {found}. "
        f"Accepted for {trainer.value}: {shown}."
    )
    whole = [c.name for c in columns.values() if c.kind == "objects"]
    if whole and (len(columns) == 1 or all(c.scanned == 1 for c in columns.values())):
        names = ", ".join(map(repr, whole))
        return BadInput(
            f"{message} The rows seem to lie under {names} of one document.",
            f"Write what is under {whole[0]!r} as a JSON list or as JSON Lines.",
        )
    separator = _separator(columns)
    if separator:
        return BadInput(
            f"{message} Its columns seem to be separated by {separator!r}.",
            "Save it with commas between them, or with tabs as .tsv.",
        )
    for layout in LAYOUTS:
        if layout not in choices and layout.matches(columns, text_field):
            trainers = " or ".join(sorted(t.value for t in layout.trainers))
            return BadInput(
                f"{message} These are {layout.name} rows, which --trainer {trainers} trains on.",
                _advice(columns, choices, text_field),
            )
    return BadInput(message, _advice(columns, choices, text_field))


def _separator(columns: Mapping[str, Column]) -> str:
    """Return what separates the names when several were read as one, else ""."""
    (name, *others) = columns
    return "" if others else next((sign for sign in (";", "\t", "|") if sign in name), "")


def _unknown_keys(column: Column) -> BadInput:
    unknown = [key for key in column.keys if key not in ("role", "content", "from", "value")]
    keys = ", ".join(map(repr, column.keys))
    return BadInput(
        f"the messages in column {column.name!r} have the keys {keys}, expected 'role' and "
        f"'content' (or 'from' and 'value'): unknown key {unknown[0] if unknown else keys!r}.",
        "Rename the speaker's key to 'role' and the text's key to 'content'.",
    )


def _advice(columns: Mapping[str, Column], choices: list[Layout], text_field: str) -> str:
    """Name the accepted layout that takes the fewest changes, and those changes."""
    if not choices:
        return ""
    # Nobody who has text is advised to tokenise it.
    layout = min(
        choices, key=lambda one: (_distance(columns, one, text_field), one.name == "tokenised")
    )
    wanted = " + ".join(layout.columns(text_field))
    steps = []
    taken = set(layout.columns(text_field))
    for name in layout.missing(columns, text_field):
        like = _like(name, [c for c in columns if c not in taken], text_field)
        if like is None:
            steps.append(f"add a column {name!r}")
            continue
        taken.add(like)
        steps.append(f"rename {like!r} to {name!r}")
        if name == text_field and columns[like].kind == "text":
            steps[-1] += f" (or set dataset_text_field={like})"
    for name in layout.mismatched(columns, text_field):
        kinds = layout.needs.get(name) or layout.needs[next(iter(layout.needs))]
        words = " or ".join(sorted(KIND_WORDS[kind] for kind in kinds))
        steps.append(f"make column {name!r} hold {words}")
    steps += [f"remove column {name!r}" for name in layout.unlike if name in columns]
    if not steps:
        steps.append("make its columns all text or all messages")
    return f"The closest layout is {wanted}: {', '.join(steps)}."


def _distance(columns: Mapping[str, Column], layout: Layout, text_field: str) -> float:
    """Return how far the columns are from a layout: a name alike costs less than a missing one."""
    cost = 0.0
    names = list(columns)
    for name in layout.missing(columns, text_field):
        like = _like(name, names, text_field)
        cost += 2.0 if like is None else 0.25 if like.casefold() == name.casefold() else 0.75
        if like is not None:
            names.remove(like)
    cost += 1.5 * len(layout.mismatched(columns, text_field))
    covered = len(layout.columns(text_field)) - len(layout.missing(columns, text_field))
    return cost - 0.1 * covered


def _like(name: str, names: list[str], text_field: str) -> str | None:
    """Return the column that is most likely meant by ``name``: same letters, a synonym, a typo."""
    folded = {column.casefold(): column for column in names}
    known = _SYNONYMS.get("text" if name == text_field else name, ())
    for word in (name.casefold(), *known, *(("text",) if name == text_field else ())):
        if word in folded:
            return folded[word]
    # A typo and no more: ``context`` is not ``text``, nor ``input`` input_ids.
    close = get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.8)
    return folded[close[0]] if close else None
