"""Reads the ``tools`` column into what TRL and chat templates take, row by row.

A tool is a JSON schema of a function; nothing is called.
"""

from __future__ import annotations

import json
from typing import Any

from autotune.core.errors import BadInput


def read_tools(value: Any, row: int) -> list[dict[str, Any]] | None:
    """Return the tools of one row as ``{"type": "function", "function": ...}``, None without any.

    Args:
        value: a JSON string, a list of schemas, or None.
        row: the row, counted from 0, for errors (which count from 1).

    Raises:
        BadInput: the string is not JSON, or what it holds is not a list of function schemas.
    """
    where = f"row {row + 1}: column 'tools'"
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise BadInput(
                f"{where} is not JSON: {error.msg} at character {error.pos}.",
                "Expected a JSON list of function schemas, or null.",
            ) from error
    if value is None:
        return None
    listed = [value] if isinstance(value, dict) else value
    if not isinstance(listed, list):
        raise BadInput(f"{where} holds {type(value).__name__}, expected a list of schemas.")
    return [_function(_decoded(tool, where), where) for tool in listed] or None


def is_plain(value: Any) -> bool:
    """Return whether TRL can pass this value on as it is (no bare schemas, no empty strings)."""
    if value is None:
        return True
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        return False
    return (
        isinstance(read, list)
        and bool(read)
        and all(isinstance(tool, dict) and "function" in tool for tool in read)
    )


def _decoded(tool: Any, where: str) -> Any:
    if not isinstance(tool, str):
        return tool
    try:
        return json.loads(tool)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where} holds a tool that is not JSON: {error.msg}.") from error


def _function(tool: Any, where: str) -> dict[str, Any]:
    if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
        return {"type": "function", **tool}
    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
        return {"type": "function", "function": tool}
    raise BadInput(f"{where} holds a tool without a name: {str(tool)[:80]}.")
