"""Finds the option of a config that a library refuses, by leaving out one at a time.

Libraries word their refusals for those who call them from Python ("`r` should be a positive
integer"); whoever wrote a config wants the name of the option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Attempt = Callable[[dict[str, Any]], object]


def blamed(
    options: Mapping[str, Any],
    attempt: Attempt,
    error: BaseException,
    refusals: tuple[type[BaseException], ...],
) -> str | None:
    """Return the option without which the same attempt is not refused in the same words.

    Args:
        options: what was attempted, by option name.
        attempt: raises one of ``refusals`` for options that are refused.
        error: what it raised for all of them.
        refusals: errors an attempt may end in; one of another class clears no option.

    Returns:
        The name, or None when no single option is to blame.
    """
    words = str(error)
    for name in sorted(options, key=lambda name: _unlikely(name, options[name], words)):
        try:
            attempt({k: v for k, v in options.items() if k != name})
        except refusals as other:
            if str(other) == words or not isinstance(other, type(error)):
                continue
        return name
    return None


def _unlikely(name: str, value: Any, words: str) -> tuple[bool, bool, bool, bool]:
    """Order options by whether a refusal shows their value or name.

    Of those alike, nested ones come first and switches last.
    """
    nested = isinstance(value, Mapping)
    parts = [*value, *value.values()] if isinstance(value, Mapping) else [value]
    parts = list(value) if isinstance(value, list | tuple | set) else parts
    shown = [text for part in parts if (text := str(getattr(part, "value", part)))]
    named = any(len(part) > 3 and part in words for part in name.split("_"))
    return (
        not any(text in words for text in shown),
        not nested,
        not named,
        isinstance(value, bool),
    )
