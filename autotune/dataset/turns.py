"""Reads one turn of a conversation: stops where it is none, notes what templates trip over.

Changes nothing; turns become messages in ``roles``.
"""

from __future__ import annotations

from typing import Any

from autotune.core.errors import BadInput, NotBuiltYet
from autotune.dataset.findings import Survey
from autotune.dataset.parts import is_media, odd_type, text_of
from autotune.dataset.roles import ROLES, needs_reading, parse_calls
from autotune.dataset.scan import KIND_WORDS, kind_of

_PLAIN_KEYS = ("role", "content", "from", "value")


def read_turn(found: Survey, turn: Any, row: int, where: str) -> str:
    """Read one turn and return the role it has for a chat template.

    Args:
        found: gets what is found.
        turn: the turn as given.
        row: its row, counted from 0.
        where: row, turn and column, for errors.

    Raises:
        BadInput: no message, or one that cannot be read.
        NotBuiltYet: parts that are pictures, sound or files.
    """
    speaker, content, from_value = _checked_turn(turn, where)
    role = ROLES.get(str(speaker).lower(), str(speaker))
    calls = turn.get("tool_calls")
    if from_value or needs_reading(speaker):
        found.aliases = True
    found.switches.add(turn, role, row)
    if isinstance(content, list):
        _read_parts(found, content, row, where)
    extra = [k for k, v in turn.items() if v is not None and k not in _PLAIN_KEYS]
    if extra or role == "call" or isinstance(content, list):
        found.plain_messages = False
    if role == "call":
        found.calls = True
        if parse_calls(content) is None:
            found.remark("unread-call", row)
        return "assistant"
    said = text_of(content) if isinstance(content, list) else content
    if not content or (isinstance(said, str) and not said.strip()):
        if role != "assistant":
            found.remark("empty-turn", row)
        elif not calls:
            found.remark("empty-assistant-turn", row)
    return role


def _read_parts(found: Survey, parts: list[Any], row: int, where: str) -> None:
    """Note content given as parts; pictures and sound in it cannot be prepared."""
    found.parts = True
    odd = odd_type(parts)
    if odd is not None and is_media(odd):
        raise NotBuiltYet(f"{where} has a part of type {odd!r}: such rows are not supported yet.")
    if odd is not None and found.odd_part is None:
        found.odd_part = (odd, row)


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
