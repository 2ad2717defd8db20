"""Converters: one function per layout that TRL does not read by itself, row to row.

Pure: a row and its number in, the row TRL reads out. Which layout gets which is the table's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import BadInput
from autotune.dataset.roles import ROLES, to_message
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
        system: whether system texts of a column of their own belong before the conversations.
        history: whether pairs of a ``history`` column are earlier turns.
        flatten: whether content given as a list of text parts becomes one text.
    """

    chat: bool
    render_calls: bool
    text_field: str = "text"
    tools: bool = False
    system: bool = False
    history: bool = False
    flatten: bool = False


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


def instruction(**answers: str) -> Converter:
    """Return a converter that reads instruction, input, system and history as a prompt.

    Args:
        answers: the column of each answer, by the name it gets.
    """

    def convert(row: Row, index: int, reading: Reading) -> Row:
        asked, system = row["instruction"], row.get("system")
        asked = f"{asked}\n{row['input']}" if row.get("input") else asked
        given = {name: row[column] for name, column in answers.items()}
        earlier = (row["history"] or []) if reading.history else []
        if not reading.chat:
            before = [system] if system else []
            before += [text for pair in earlier for text in pair]
            return {"prompt": "".join(f"{text}\n\n" for text in (*before, asked)), **given}
        opening: Messages = [_said("system", system)] if system else []
        for question, answer in earlier:
            opening += [_said("user", question), _said("assistant", answer)]
        said = {name: [_said("assistant", answer)] for name, answer in given.items()}
        return {"prompt": [*opening, _said("user", asked)], **said}

    return convert


def sides(*columns: str) -> Converter:
    """Return a converter that reads each of these columns, text or messages, into itself."""

    def convert(row: Row, index: int, reading: Reading) -> Row:
        return {column: _side(row, column, index, reading) for column in columns}

    return convert


def answered(asked: str) -> Converter:
    """Return a converter that reads a prompt and two answers, each text or messages, as messages.

    Args:
        asked: the column of the prompt. Where both answers are whole conversations the prompt is
            what they share; messages in this column come before it, unless it repeats them.
    """

    def convert(row: Row, index: int, reading: Reading) -> Row:
        chosen = _spoken(row, "chosen", "assistant", index, reading)
        rejected = _spoken(row, "rejected", "assistant", index, reading)
        if chosen[0]["role"] == rejected[0]["role"] == "assistant":
            prompt = _spoken(row, asked, "user", index, reading)
            return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        same = 0
        while same < min(len(chosen), len(rejected)) - 1 and chosen[same] == rejected[same]:
            same += 1
        if same == 0:
            raise BadInput(
                f"row {index + 1}: chosen begins with {chosen[0]['role']!r} and rejected with "
                f"{rejected[0]['role']!r}, expected the same prompt messages, or answers alone."
            )
        prompt = chosen[:same]
        if not isinstance(row[asked], str):
            before = _messages(row, asked, index, reading)
            repeated = min(len(before), same)
            prompt = prompt if before[:repeated] == prompt[:repeated] else before + prompt
        return {"prompt": prompt, "chosen": chosen[same:], "rejected": rejected[same:]}

    return convert


def openai_preference(row: Row, index: int, reading: Reading) -> Row:
    """Read ``input.messages`` and two outputs, as OpenAI's fine-tuning has them."""
    asked = row["input"]
    said = asked.get("messages")
    if not said or asked.get("tools"):
        raise BadInput(
            f"row {index + 1}: column 'input' has {'tools' if said else 'no messages'}, and only "
            "messages are read from it.",
            "Write the rows as columns prompt, chosen, rejected and tools.",
        )
    pair = {"chosen": row["preferred_output"], "rejected": row["non_preferred_output"]}
    return answered("prompt")({"prompt": said, **pair}, index, reading)


def labelled(read: Converter) -> Converter:
    """Return the converter of prompt and completion with the rating beside them."""

    def convert(row: Row, index: int, reading: Reading) -> Row:
        return {**read(row, index, reading), "label": bool(row["label"])}

    return convert


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


def with_beside(converter: Converter) -> Converter:
    """Return the converter with the columns beside a conversation: its tools, its system text.

    A conversation that has a system message keeps that one.
    """

    def convert(row: Row, index: int, reading: Reading) -> Row:
        converted = converter(row, index, reading)
        if reading.tools:
            converted["tools"] = read_tools(row.get("tools"), index)
        if reading.system and row["system"]:
            for opening in openings(converted):
                if lacks_system(converted[opening]):
                    converted[opening] = [_said("system", row["system"]), *converted[opening]]
        return converted

    return convert


def openings(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns with which the conversation of a row begins: two without a prompt."""
    first = (name for name in ("messages", "conversations", "prompt") if name in columns)
    return tuple(first)[:1] or ("chosen", "rejected")


def lacks_system(said: Any) -> bool:
    """Return whether a text or conversation, read or as given, begins with another speaker."""
    if isinstance(said, str):
        return True
    first = said if isinstance(said, dict) else said[0]
    return ROLES.get(str(first.get("from", first.get("role"))).lower()) != "system"


def _side(row: Row, column: str, index: int, reading: Reading) -> Any:
    return row[column] if isinstance(row[column], str) else _messages(row, column, index, reading)


def _spoken(row: Row, column: str, role: str, index: int, reading: Reading) -> Messages:
    """Read a column of text, said by ``role``, or of messages as messages."""
    if isinstance(row[column], str):
        return [_said(role, row[column])]
    return _messages(row, column, index, reading)


def _said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _messages(row: Row, column: str, index: int, reading: Reading) -> Messages:
    said = row[column]
    turns = [said] if isinstance(said, dict) else said
    where = f"row {index + 1}: column {column!r}"
    how = {"render_calls": reading.render_calls, "flatten": reading.flatten}
    return [to_message(turn, where, **how) for turn in turns]
