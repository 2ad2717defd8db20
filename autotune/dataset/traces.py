"""Decides whether a text left its trace in what a tokenizer's ids spell, and whether all of it did.

Templates strip and indent, and write what they are given as JSON: so white space does not count,
and a text may stand escaped, or as the texts of the JSON it is.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property

from autotune.dataset.leaves import texts_in

#: Pieces shorter than this, white space left out, are found in any longer text by chance.
_TELLING = 8


class Fate(StrEnum):
    """Say what became of a text; from ``LOST`` on, the worse the lower."""

    WHOLE = "whole"
    CHANGED = "changed"
    PARTLY = "partly"
    LOST = "lost"


class Spelled:
    """Hold what ids spell, white space left out.

    Args:
        text: the decoded ids.
    """

    def __init__(self, text: str) -> None:
        self.bare = bare(text)

    @cached_property
    def _folded(self) -> str:
        return _fold(self.bare)

    @cached_property
    def _composed(self) -> str:
        return unicodedata.normalize("NFC", self.bare)

    def holds(self, text: str) -> bool:
        """Return whether the text stands here, plain, composed otherwise, or inside JSON."""
        plain = bare(text)
        return (
            plain in self.bare
            or any(bare(form) in self.bare for form in _escaped(text))
            or (not plain.isascii() and unicodedata.normalize("NFC", plain) in self._composed)
        )

    def fate_of(self, text: str, as_tokens: Callable[[str], str] | None) -> Fate:
        """Return what became of a text.

        Args:
            text: a text of the row.
            as_tokens: what the tokenizer's own ids for a text spell; None: not tried.
        """
        if self.holds(text):
            return Fate.WHOLE
        inner = _inside(text)
        if inner and all(self.holds(one) for one in inner):
            return Fate.WHOLE
        if _fold(bare(text)) in self._folded:
            return Fate.CHANGED
        if as_tokens is not None and bare(as_tokens(text)) in self.bare:
            return Fate.CHANGED
        pieces = inner or _pieces(text)
        telling = [one for one in pieces if len(bare(one)) >= _TELLING]
        return Fate.PARTLY if any(self.holds(one) for one in telling) else Fate.LOST


def bare(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _escaped(text: str) -> tuple[str, ...]:
    """Return how the text is written inside JSON, where that differs."""
    forms = (json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1])
    return tuple(form for form in dict.fromkeys(forms) if form != text)


def _inside(text: str) -> list[str]:
    """Return the texts of the JSON object or list that this text is, none when it is neither."""
    if text.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return [one for one in texts_in(json.loads(text)) if one.strip()]
    except (json.JSONDecodeError, RecursionError):
        return []


def _pieces(text: str) -> list[str]:
    """Return the lines of a text, or the halves of a single one."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        return lines
    half = len(text) // 2
    return [text[:half], text[half:]]
