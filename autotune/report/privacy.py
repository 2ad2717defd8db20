"""Take secrets and home folders out of what is shown; reports are posted and passed on.

Every reporter begins with `public`. The stored result is not changed by it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from autotune.core.result import Result
from autotune.core.secrets import HIDDEN, SECRET_OPTIONS, hide_text, is_secret_variable

_HOME = re.compile(r"(?:/home/[^/\s\"'<>:]+|/Users/[^/\s\"'<>:]+|/root)(?=[/\s\"'<>:,)]|$)")


def public(result: Result) -> Result:
    """Return the result as it may be shown: no secret, no home folder, and nothing else changed."""
    return Result.model_validate(clean(result.model_dump(mode="json")))


def clean_text(text: str) -> str:
    """Return the text with secrets hidden and home folders written as ``~``."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?=[/\s\"'<>:,)]|$)", "~", text)
    return hide_text(_HOME.sub("~", text))


def clean(value: Any) -> Any:
    """Clean every string in a tree of mappings and lists; values under secret names are hidden."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {
            clean_text(str(k)): HIDDEN if _is_secret(str(k)) and v else clean(v)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def _is_secret(name: str) -> bool:
    return name in SECRET_OPTIONS or (name.isupper() and is_secret_variable(name))
