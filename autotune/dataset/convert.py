"""Converters: one function per layout that TRL does not read by itself, row to row.

Pure: a row and its number in, the row TRL reads out. Which layout gets which is the table's matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import BadInput
from autotune.dataset.roles import to_message
from autotune.dataset.tools import read_tools

Row = dict[str, Any]
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Reading:
    """Say how rows are to be read for this tokenizer.

    Args:
        chat: whether the tokenizer has a chat template.
        render_calls: whether that template renders ``tool_calls``.
        text_field: TRL's ``dataset_text_field``.
        tools: whether the rows have a ``tools`` column.
    """

    chat: bool
    render_calls: bool
    text_field: str = "text"
    tools: bool = False


Converter = Callable[[Row, int, Reading], Row]


def messages(row: Row, index: int, reading: Reading) -> Row:
    """Read ``messages`` or ``conversations`` into ``messages``."""
    column = "messages" if row.get("messages") is not None else "conversations"
    return {"messages": _messages(row, column, index, reading)}


def text(row: Row, index: int, reading: Reading) -> Row:
    """Keep the text column alone."""
    return {reading.text_field: row[reading.text_field]}


def tokenised(row: Row, index: int, reading: Reading) -> Row:
    """Keep the token columns alone; never called, they are passed on as they are."""
    return row


def instruction(row: Row, index: int, reading: Reading) -> Row:
    """Read instruction/input/output (and system) as a prompt and its completion."""
    asked = row["instruction"] if not row.get("input") else f"{row['instruction']}\n{row['input']}"
    system = row.get("system")
    if not reading.chat:
        asked = f"{system}\n\n{asked}" if system else asked
        return {"prompt": f"{asked}\n\n", "completion": row["output"]}
    opening: Messages = [{"role": "system", "content": system}] if system else []
    return {
        "prompt": [*opening, {"role": "user", "content": asked}],
        "completion": [{"role": "assistant", "content": row["output"]}],
    }


def sides(*columns: str) -> Converter:
    """Return a converter that reads each of these columns, text or messages, into itself."""

    def convert(row: Row, index: int, reading: Reading) -> Row:
        return {column: _side(row, column, index, reading) for column in columns}

    return convert


def conversation_preference(row: Row, index: int, reading: Reading) -> Row:
    """Read conversations + chosen + rejected as prompt, chosen and rejected messages."""
    return {
        "prompt": _messages(row, "conversations", index, reading),
        "chosen": _messages(row, "chosen", index, reading),
        "rejected": _messages(row, "rejected", index, reading),
    }


def copied_prompt(row: Row, index: int, reading: Reading) -> Row:
    """Read a text prompt beside chosen and rejected messages, which may repeat it, as messages."""
    chosen = _messages(row, "chosen", index, reading)
    rejected = _messages(row, "rejected", index, reading)
    if chosen[0]["role"] == rejected[0]["role"] == "assistant":
        prompt: Messages = [{"role": "user", "content": row["prompt"]}]
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    same = 0
    while same < min(len(chosen), len(rejected)) - 1 and chosen[same] == rejected[same]:
        same += 1
    if same == 0:
        raise BadInput(
            f"row {index + 1}: chosen begins with {chosen[0]['role']!r} and rejected with "
            f"{rejected[0]['role']!r}, expected the same prompt messages, or answers alone."
        )
    return {"prompt": chosen[:same], "chosen": chosen[same:], "rejected": rejected[same:]}


def labelled(row: Row, index: int, reading: Reading) -> Row:
    """Read prompt, completion and label, each side text or messages."""
    return {
        "prompt": _side(row, "prompt", index, reading),
        "completion": _side(row, "completion", index, reading),
        "label": bool(row["label"]),
    }


def labelled_messages(row: Row, index: int, reading: Reading) -> Row:
    """Divide a rated conversation before its last message: prompt, completion and label."""
    column = "messages" if row.get("messages") is not None else "conversations"
    said = _messages(row, column, index, reading)
    if len(said) < 2 or said[-1]["role"] != "assistant":
        raise BadInput(
            f"row {index + 1}: column {column!r} has {len(said)} messages and ends with "
            f"{said[-1]['role']!r}, expected a prompt and a last message by 'assistant'."
        )
    return {"prompt": said[:-1], "completion": said[-1:], "label": bool(row["label"])}


def with_tools(converter: Converter) -> Converter:
    """Return the converter with the ``tools`` column read beside it, when rows have one."""

    def convert(row: Row, index: int, reading: Reading) -> Row:
        converted = converter(row, index, reading)
        if reading.tools:
            converted["tools"] = read_tools(row.get("tools"), index)
        return converted

    return convert


def _side(row: Row, column: str, index: int, reading: Reading) -> Any:
    return row[column] if isinstance(row[column], str) else _messages(row, column, index, reading)


def _messages(row: Row, column: str, index: int, reading: Reading) -> Messages:
    said = row[column]
    turns = [said] if isinstance(said, dict) else said
    where = f"row {index + 1}: column {column!r}"
    return [to_message(turn, where, render_calls=reading.render_calls) for turn in turns]
