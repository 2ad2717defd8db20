"""Where words go: stdout is the result, stderr is everything else; NO_COLOR and pipes honoured.

A reader that goes away (``| head``) is no fault of the work: a result is then not written any
further, and the work keeps its own exit code. Progress nobody hears ends the work.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def stdout() -> Console:
    """Return the console of the result."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Return the console of progress and errors; raises BrokenPipeError when nobody reads it."""
    return _console(sys.stderr)


def say(text: str, *, nl: bool = True) -> None:
    """Write a result to stdout as it is.

    Args:
        text: what to write.
        nl: end it with a new line.
    """
    try:
        sys.stdout.write(f"{text}\n" if nl else text)
        sys.stdout.flush()
    except BrokenPipeError:
        to_nobody()


def say_error(message: str, hint: str | None) -> None:
    """Say one error on stderr, and after it what to do: in one line, and a line for each item.

    Args:
        message: the sentence; items of a list begin with a new line and ``  - ``.
        hint: what to do.
    """
    first, *items = (" ".join(line.split()) for line in re.split(r"\n(?=  - )", message))
    advice = "" if hint is None else " ".join(hint.split())
    # A suggestion ends in a question mark and needs no full stop after it.
    first = re.sub(r"\?\.(?=\s|$)", "?", first)
    lines = [first, *(f"  {item}" for item in items), advice] if items else [f"{first} {advice}"]
    text = "\n".join(lines).rstrip()
    stderr().print(f"error: {text}", style="red", markup=False, soft_wrap=True)


def fill_closed_streams() -> None:
    """Give streams that are closed (``>&-``) to nobody; else the next files opened become them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123  (for good)


def to_nobody() -> None:
    """Have what is still written to stdout go nowhere, and be no fault at the exit."""
    nobody = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nobody, sys.stdout.fileno())
    os.close(nobody)


def _console(file: TextIO) -> Console:
    from rich.console import Console

    class Plain(Console):
        """Rich itself would end the process with 1, the exit code of a regression."""

        def on_broken_pipe(self) -> None:
            if file is sys.stderr:
                raise BrokenPipeError
            to_nobody()

    return Plain(file=file, highlight=False, soft_wrap=not file.isatty())
