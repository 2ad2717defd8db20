"""Where words go: stdout is the result, stderr is everything else; NO_COLOR and pipes honoured."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def out() -> Console:
    """Return the console of the result."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def err() -> Console:
    """Return the console of progress and errors."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, soft_wrap=not sys.stderr.isatty())


def say_error(message: str, hint: str | None) -> None:
    """Say one error in one line on stderr, and after it what to do."""
    # A suggestion ends in a question mark and needs no full stop after it.
    text = re.sub(r"\?\.(?=\s|$)", "?", " ".join(message.split()))
    advice = "" if hint is None else " " + " ".join(hint.split())
    err().print(f"error: {text}{advice}", style="red", markup=False, soft_wrap=True)
