"""Take secrets and home folders out of what is shown; reports are posted and passed on.

Every reporter begins with `public`. The stored result is not changed by it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from autotune.core.result import Result

HIDDEN = "(hidden)"
#: Options whose value is a secret, whatever it looks like.
_SECRET_OPTIONS = ("hub_token", "push_to_hub_token")
#: Environment variables whose value is a secret by their name.
_SECRET_VARIABLE = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE)", re.I)
#: Tokens of Hugging Face, GitHub and OpenAI-like services, AWS key ids, passwords inside URLs.
_SECRET_TEXT = re.compile(
    r"\b(?:hf|api_org|ghp|gho|ghs|github_pat|sk|glpat)[_-][A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_HOME = re.compile(r"(?:/home/[^/\s\"'<>:]+|/Users/[^/\s\"'<>:]+|/root)(?=[/\s\"'<>:,)]|$)")


def public(result: Result) -> Result:
    """Return the result as it may be shown: no secret, no home folder, and nothing else changed."""
    return Result.model_validate(clean(result.model_dump(mode="json")))


def clean_text(text: str) -> str:
    """Return the text with secrets hidden and home folders written as ``~``."""
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?=[/\s\"'<>:,)]|$)", "~", text)
    return _SECRET_TEXT.sub(HIDDEN, _HOME.sub("~", text))


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
    return name in _SECRET_OPTIONS or (name.isupper() and bool(_SECRET_VARIABLE.search(name)))
