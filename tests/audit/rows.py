"""Rows of uneven length as users write them, for every layout the audit tries."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]

_COUNT = 24
_WORDS = ("one", "two", "three", "four", "five", "six", "seven")


def _text(count: int, start: int) -> str:
    return " ".join(_WORDS[(start + i) % len(_WORDS)] for i in range(count))


def texts() -> Rows:
    """Return rows of one text each."""
    return [{"text": _text(4 + 3 * (i % 9), i)} for i in range(_COUNT)]


def few_texts() -> Rows:
    """Return three rows."""
    return texts()[:3]


def token_rows(*lengths: int) -> Rows:
    """Return tokenised rows of these lengths; every token is trained."""
    rows = [[5 + (row + at) % 40 for at in range(count)] for row, count in enumerate(lengths)]
    return [{"input_ids": ids, "labels": ids} for ids in rows]


def preferences() -> Rows:
    """Return prompts with two answers."""
    return [
        {
            "prompt": _text(3 + i % 4, i),
            "chosen": _text(4 + 3 * (i % 7), i),
            "rejected": _text(3 + i % 9, 2 * i),
        }
        for i in range(_COUNT)
    ]


def thumbs() -> Rows:
    """Return prompts with one answer and what was thought of it."""
    return [
        {
            "prompt": row["prompt"],
            "completion": row["chosen" if i % 2 else "rejected"],
            "label": bool(i % 2),
        }
        for i, row in enumerate(preferences())
    ]


def prompts_and_completions() -> Rows:
    """Return prompts with one answer each."""
    return [{"prompt": r["prompt"], "completion": r["chosen"]} for r in preferences()]


def conversations() -> Rows:
    """Return conversations of one question and one answer."""
    return [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": row["chosen"]},
            ]
        }
        for row in preferences()
    ]
