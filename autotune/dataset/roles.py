"""Turns the many spellings of a conversation into role/content messages.

One message at a time; knows nothing of columns or trainers. What it cannot read is an error that
names the row, never a message left out.
"""

from __future__ import annotations

import json
from typing import Any

from autotune.core.errors import BadInput, nearest
from autotune.dataset.parts import text_of

#: Role every known speaker stands for; ``call`` becomes an assistant message that calls a tool.
ROLES = {
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "ipython": "tool",
    "function_call": "call",
    "tool_call": "call",
}


def to_message(
    turn: dict[str, Any], where: str, *, render_calls: bool, flatten: bool = False
) -> dict[str, Any]:
    """Return a role/content message for a from/value turn or a message with an alias as its role.

    Args:
        turn: the turn as given; keys other than speaker and text are kept.
        where: row and column, for errors.
        render_calls: whether the chat template renders ``tool_calls``; if not, a function call
            stays in the content as it was written.
        flatten: whether content given as a list of text parts becomes one text.

    Raises:
        BadInput: no speaker, or one that is not known in a from/value turn.
    """
    said = {k: v for k, v in turn.items() if k not in ("from", "value", "role", "content")}
    said = {k: v for k, v in said.items() if v is not None}
    from_value = "from" in turn
    speaker = turn.get("from") if from_value else turn.get("role")
    content = turn.get("value") if from_value else turn.get("content")
    if flatten and isinstance(content, list):
        content = text_of(content)
    role = ROLES.get(str(speaker).lower()) if speaker is not None else None
    if role is None:
        if speaker is None or from_value:
            raise BadInput(
                f"{where} has a turn by {speaker!r}, expected one of "
                f"{', '.join(ROLES)}{nearest(str(speaker), list(ROLES))}."
            )
        role = str(speaker)
    if role != "call":
        return {"role": role, "content": "" if content is None else content, **said}
    calls = parse_calls(content) if render_calls else None
    if calls is None:
        return {"role": "assistant", "content": content, **said}
    return {"role": "assistant", "content": "", "tool_calls": calls, **said}


def parse_calls(content: Any) -> list[dict[str, Any]] | None:
    """Read ``{"name": ..., "arguments": ...}``, or a list of them, as tool calls, else None."""
    if not isinstance(content, str):
        return None
    try:
        read = json.loads(content)
    except json.JSONDecodeError:
        return None
    calls = []
    for call in read if isinstance(read, list) else [read]:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return None
        arguments = call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except json.JSONDecodeError:
                return None
        function = {"name": call["name"], "arguments": arguments}
        calls.append({"type": "function", "function": function})
    return calls or None


def needs_reading(role: Any) -> bool:
    """Return whether a role in role/content messages is an alias a template would not know."""
    return isinstance(role, str) and ROLES.get(role.lower(), role) != role
