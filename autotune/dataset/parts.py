"""Reads message content that is given as a list of parts, as chat services and vision rows have it.

A part is text or something else; what has text alone can be written as one text.
"""

from __future__ import annotations

from typing import Any

from autotune.core.errors import BadInput

#: Types of a part whose ``text`` is plain text.
_TEXT_TYPES = ("text", "input_text", "output_text", None)
#: Words in the type of a part that is no text at all.
_MEDIA = ("image", "video", "audio", "file", "document")


def text_of(parts: list[Any]) -> str | None:
    """Return the text of parts that are text alone, joined by line breaks, else None."""
    texts = [_text(part) for part in parts]
    return None if None in texts else "\n".join(text for text in texts if text is not None)


def odd_type(parts: list[Any]) -> str | None:
    """Return the type of the first part that is no text, None when all are."""
    for part in parts:
        if _text(part) is None:
            return str(part.get("type")) if isinstance(part, dict) else type(part).__name__
    return None


def check_parts(odd: tuple[str, int] | None, flatten: bool) -> None:
    """Stop at parts that are no text where the chat template renders no parts.

    Args:
        odd: type of the first such part and its row, None without any.
        flatten: whether content is to become plain text.

    Raises:
        BadInput: with the type and the row.
    """
    if odd is not None and flatten:
        kind, row = odd
        raise BadInput(
            f"row {row + 1}: a message has a part of type {kind!r}, and the chat template renders "
            "no content given as parts (rows count from 1).",
            "Write the content as plain text, or set chat_template_path to a template that "
            "renders such parts.",
        )


def is_media(kind: str) -> bool:
    """Return whether parts of a type are pictures, sound or files."""
    return any(word in kind for word in _MEDIA)


def _text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type") not in _TEXT_TYPES:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None
