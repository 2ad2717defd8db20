"""What looks like a secret is hidden, and what does not stays."""

from __future__ import annotations

import pytest

from autotune.core.errors import BadInput
from autotune.core.secrets import HIDDEN, hide_text


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("mysql+pymysql://me:pw@host/name", f"mysql+pymysql://{HIDDEN}@host/name"),
        ("https://pw@host/x", f"https://{HIDDEN}@host/x"),
        ("no file https:/me:pw@host/x", f"no file https:/{HIDDEN}@host/x"),
        ("https://me:p@pw@host/x", f"https://{HIDDEN}@host/x"),
        ("https://host/x?token=pw&a=1#b", f"https://host/x?token={HIDDEN}&a=1#b"),
        ("https://host/x?a=1&X-Amz-Credential=pw", f"https://host/x?a=1&X-Amz-Credential={HIDDEN}"),
        ("https://host/x?sig=pw", f"https://host/x?sig={HIDDEN}"),
    ],
)  # fmt: skip
def test_what_an_address_gives_away_is_hidden(text: str, hidden: str) -> None:
    assert hidden == hide_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "ssh://git@host/x",
        "https://host/x?page=2&sort=key",
        "https://host:8080/x",
        "a@b.example said: see https://host/@me",
        "file:///home/me/rows.jsonl",
        "num_tokens=3&monkey=4",
    ],
)
def test_what_gives_nothing_away_stays(text: str) -> None:
    assert text == hide_text(text)


def test_an_error_never_says_a_password() -> None:
    error = BadInput("--storage is mysql://me:pw@host.", "Not https://pw@host?")
    assert "pw" not in f"{error} {error.message} {error.hint} {error.args}"
