"""Passes how far a measuring process has come to the process that waits for it.

One small file in the request's own folder, replaced whole at most five times a second; it is a
remark, and nothing depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from autotune.core.job import Frozen
from autotune.probe.documents import write_document

PROGRESS_FILE = "progress.json"
_LEAST_SECONDS = 0.2


class Progress(Frozen):
    """Say how far it has come.

    Args:
        what: what is being done, in a word.
        done: rows done.
        total: rows there are; 0 when that is not known.
    """

    what: str
    done: int = 0
    total: int = 0


class ProgressFile:
    """Write progress beside a request."""

    def __init__(self, folder: Path) -> None:
        """Take the request's folder."""
        self._path = folder / PROGRESS_FILE
        self._what = ""
        self._next = 0.0

    def close(self) -> None:
        """Remove the file: what it spoke of is over."""
        self._path.unlink(missing_ok=True)

    def tell(self, what: str, done: int, total: int) -> None:
        """Write it, unless the same thing was told just before.

        Args:
            what: what is being done, in a word.
            done: rows done.
            total: rows there are, 0 when that is not known.
        """
        now = time.monotonic()
        if what == self._what and now < self._next:
            return
        self._what, self._next = what, now + _LEAST_SECONDS
        write_document(self._path, Progress(what=what, done=done, total=total))


def and_progress(
    folder: Path, tick: Callable[[float], None], tell: Callable[[str, int, int], None]
) -> Callable[[float], None]:
    """Return a tick that tells progress as well whenever it has changed.

    Args:
        folder: where the process writes it.
        tick: called with the seconds passed.
        tell: called with what is being done, rows done, and rows there are.
    """
    last: Progress | None = None

    def both(seconds: float) -> None:
        nonlocal last
        now = read_progress(folder)
        if now is not None and now != last:
            last = now
            tell(now.what, now.done, now.total)
        tick(seconds)

    return both


def read_progress(folder: Path) -> Progress | None:
    """Return how far the process in this folder has come, None while it has not said."""
    try:
        return Progress.model_validate_json((folder / PROGRESS_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
