"""Writes rows in a layout TRL reads, when they came in another one, and says what was changed.

Applies the layout's converter to every row; it decides nothing about layouts itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.dataset.convert import Converter, Reading, Row, with_beside
from autotune.dataset.findings import Survey
from autotune.dataset.layouts import Layout
from autotune.dataset.survey import KEPT

if TYPE_CHECKING:
    from datasets import Dataset


def changes_of(layout: Layout, survey: Survey, reading: Reading) -> list[str]:
    """Return what has to be changed before TRL can read the rows, in words; empty when nothing."""
    changes = []
    if layout.converted is not None:
        form = ""
        if "instruction" in layout.needs:
            form = (
                " messages"
                if reading.chat
                else " as plain text, because the tokenizer has no chat template"
            )
        changes.append(layout.converted + form)
    if reading.system:
        changes.append("texts of column 'system' to a first message")
    if reading.history:
        changes.append("question and answer pairs of column 'history' to earlier turns")
    if reading.flatten:
        changes.append("content given as lists of text parts to plain text, joined by line breaks")
    if survey.aliases:
        changes.append("speakers to the roles user, assistant, system and tool")
    if survey.calls:
        changes.append(
            "function calls to tool_calls"
            if reading.render_calls
            else "function calls kept as text, because the chat template does not render tool_calls"
        )
    if not survey.plain_tools:
        changes.append("tools to a JSON list of function schemas, null without any")
    if survey.in_the_way:
        changes.append(f"left out columns {', '.join(survey.in_the_way)}, which TRL would misread")
    return changes


def rewrite(
    rows: Dataset, layout: Layout, survey: Survey, reading: Reading, workers: int | None
) -> Dataset:
    """Return the rows in the layout TRL reads, in the same order and number.

    Args:
        rows: the split as loaded.
        layout: its layout.
        survey: what reading all rows found.
        reading: how rows are read for this tokenizer.
        workers: processes to use, None for this one.

    Raises:
        BadInput: a row the converter cannot read, by its number.
    """
    from datasets import Features

    convert = _converter(layout.read, reading)
    sample = convert(rows[0], 0)
    features = Features({n: _feature(n, value, survey) for n, value in sample.items()})
    features |= {name: rows.features[name] for name in KEPT if name in rows.column_names}
    return rows.map(
        convert,
        with_indices=True,
        remove_columns=[name for name in rows.column_names if name not in features],
        features=features,
        num_proc=workers,
        desc="Converting rows",
    )


def _converter(read: Converter, reading: Reading) -> Callable[[Row, int], Row]:
    whole = with_beside(read)

    def convert(row: Row, index: int) -> Row:
        converted = whole(row, index, reading)
        if converted.get("tools") is not None:
            # a JSON string keeps schemas of different rows apart; TRL reads it back
            converted["tools"] = json.dumps(converted["tools"], ensure_ascii=False)
        return converted

    return convert


def _feature(name: str, value: Any, survey: Survey) -> Any:
    from datasets import Json, List, Value

    if name == "tools" or isinstance(value, str):
        return Value("string")
    if isinstance(value, bool):
        return Value("bool")
    if survey.plain_messages:
        return List({"role": Value("string"), "content": Value("string")})
    return List(Json())
