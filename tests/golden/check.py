"""Compare a text with its golden file; ``AUTOTUNE_GOLDEN=write`` writes the files anew."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent


def assert_golden(name: str, text: str) -> None:
    """Fail unless ``text`` is what the golden file holds.

    Args:
        name: path below ``tests/golden``.
        text: what was made now.
    """
    file = HERE / name
    if os.environ.get("AUTOTUNE_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text
