"""Replaces an attribute for as long as a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MISSING = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let a module or class have another attribute, and then its own again.

    Args:
        owner: module or class.
        name: attribute; one that is missing is removed again.
        value: what it is meanwhile.
    """
    original = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if original is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
