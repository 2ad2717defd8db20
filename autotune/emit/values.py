"""Option values as YAML 1.1 and YAML 1.2 text that every reader understands alike.

TRL reads with PyYAML (YAML 1.1), where ``2e-5`` is a string and ``no`` is false; editors and other
tools read YAML 1.2. What is written here means the same to both. Does not know any option.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

#: Strings that are plain text to every YAML reader without quotes.
_PLAIN = re.compile(r"^[A-Za-z_/][A-Za-z0-9_./+-]*$")
#: Words YAML 1.1 or 1.2 reads as a boolean or as nothing.
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
_EXPONENT_ONLY = re.compile(r"^[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$")


def yaml_text(value: Any) -> str:
    """Write one value in flow style, on one line.

    Args:
        value: None, a boolean, a number, a string, or lists and string-keyed mappings of them.
    """
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{yaml_text(str(k))}: {yaml_text(v)}" for k, v in value.items())
        return "{" + inner + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(yaml_text(item) for item in value) + "]"
    return _string_text(str(value))


def yaml_block(name: str, value: Any, indent: int = 0) -> list[str]:
    """Write ``name: value`` as lines; a mapping, or a list of mappings, is laid out as a block.

    Args:
        name: the key.
        value: as for `yaml_text`.
        indent: columns before the key.
    """
    pad = " " * indent
    key = f"{pad}{yaml_text(name)}:"
    if isinstance(value, list | tuple) and value and all(isinstance(v, Mapping) for v in value):
        lines = [key]
        for item in value:
            pairs = [f"{yaml_text(str(k))}: {yaml_text(v)}" for k, v in item.items()]
            lines += [f"{pad}  {'- ' if n == 0 else '  '}{pair}" for n, pair in enumerate(pairs)]
        return lines
    return [f"{key} {yaml_text(value)}"]


def same_value(written: Any, meant: Any) -> bool:
    """Say whether a value as the user spelt it is the value that is meant.

    TRL's parser turns ``2e-5`` or ``"true"`` into what the option's type asks for, a JSON string
    into a mapping, one word into a list of one, ``none`` into an empty list, and ``~`` into home.
    """
    a, b = typed(written), typed(meant)
    if a == b and isinstance(a, bool) == isinstance(b, bool):
        return True
    if isinstance(a, str) and isinstance(b, str):
        return a.startswith("~") and str(Path(a).expanduser()) == b
    if isinstance(a, str) and isinstance(b, list):
        return b == ([] if a == "none" else [a])
    if isinstance(a, str) and isinstance(b, dict):
        return a.lstrip().startswith("{") and _from_json(a) == b
    return False


def typed(value: Any) -> Any:
    """Return a plain value: a string that only spells a number or a boolean as that.

    Members of enumerations become their value; anything else is unchanged.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        if _EXPONENT_ONLY.match(value):
            return float(value)
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
    return value


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def quoted(text: str) -> str:
    """Write a string in double quotes, with escapes that YAML and Python read alike."""
    return "".join(
        letter if letter.isprintable() else _escape(ord(letter))
        for letter in json.dumps(text, ensure_ascii=False)
    )


def one_line(value: Any, limit: int = 120) -> str:
    """Show a value in a comment: on one line, without control characters, cut at ``limit``."""
    text = " ".join((value if isinstance(value, str) else yaml_text(value)).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _float_text(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    # YAML 1.1 sees a float only when there is a point before the exponent.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _string_text(text: str) -> str:
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    return quoted(text)
