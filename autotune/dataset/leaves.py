"""Finds every text a row holds, with the place it stands at: column, message field and speaker.

Knows how rows nest, not what becomes of their text; that is followed in ``survival``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autotune.dataset.roles import ROLES
from autotune.dataset.tools import read_tools

#: Columns whose text is an answer wherever it is no conversation.
ANSWERS = ("completion", "output", "chosen", "rejected", "text")
#: Keys whose texts name or number things instead of saying something.
_STRUCTURE = frozenset({"type", "id", "tool_call_id", "role", "from"})
#: Keys of a function schema whose texts a model is to read.
_SCHEMA = ("name", "description")
#: Options for the chat template: they steer the rendering and are no text of the row.
NO_TEXT = frozenset({"chat_template_kwargs", "margin"})


class Place(NamedTuple):
    """Say where a text stands.

    Args:
        column: the column.
        field: the key in a message, "" for a column that is no conversation.
        role: the speaker, "" without one.
    """

    column: str
    field: str = ""
    role: str = ""

    def __str__(self) -> str:
        if not self.field:
            return f"column {self.column!r}" + (f" ({self.role})" if self.role else "")
        return f"{self.column}[].{self.field} ({self.role})"

    @property
    def is_main(self) -> bool:
        """Whether it is what is said, not a field beside it."""
        return self.field in ("", "content", "value")

    @property
    def is_answer(self) -> bool:
        """Whether a model is to learn to say it; a prompt's own turns are context."""
        if self.role:
            return self.role == "assistant" and self.column != "prompt"
        return self.column in ANSWERS


class Leaf(NamedTuple):
    """Hold one text and its place."""

    place: Place
    text: str


def leaves_of(row: Mapping[str, Any], read: frozenset[str]) -> Iterator[Leaf]:
    """Yield every text of a row that is not blank.

    Args:
        row: columns as given.
        read: columns that the row's layout reads; of the others only the column is told apart.
    """
    for column, value in row.items():
        if column in NO_TEXT or value is None:
            continue
        for leaf in _of_column(column, value, column in read):
            if leaf.text and not leaf.text.isspace():
                yield leaf


def _of_column(column: str, value: Any, read: bool) -> Iterator[Leaf]:
    if read and column == "tools":
        yield from (Leaf(Place(column), text) for text in _of_schema(read_tools(value, 0)))
    elif isinstance(value, str) or not read:
        yield from (Leaf(Place(column), text) for text in texts_in(value))
    elif column == "history":
        for asked, answer in value:
            yield Leaf(Place(column, role="user"), asked)
            yield Leaf(Place(column, role="assistant"), answer)
    else:
        said = value.get("messages") if isinstance(value, dict) and "messages" in value else value
        for turn in said if isinstance(said, list) else [said]:
            if isinstance(turn, dict):
                yield from _of_turn(column, turn)


def _of_turn(column: str, turn: dict[str, Any]) -> Iterator[Leaf]:
    speaker = str(turn.get("from") or turn.get("role"))
    role = ROLES.get(speaker.lower(), speaker)
    role = "assistant" if role == "call" else role
    for key, value in turn.items():
        if value is not None and key not in _STRUCTURE:
            place = Place(column, key, role)
            yield from (Leaf(place, text) for text in texts_in(value))


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text inside a value, those that only name or number things left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _STRUCTURE:
                yield from texts_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts_in(inner)


def _of_schema(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _SCHEMA and isinstance(inner, str):
                yield inner
            elif not isinstance(inner, str):
                yield from _of_schema(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _of_schema(inner)
