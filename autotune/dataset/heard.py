"""Hears what TRL and the libraries below it warn of while they prepare rows, in every process.

Their warnings go to a log nobody reads, once per process and without a count. Here each is counted
and becomes one remark. It changes nothing of what the libraries do.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.core.profile import Notice

_LIBRARIES = ("trl", "transformers", "accelerate", "datasets")
#: What is said better elsewhere, or is about the stand-in and not the rows.
_NOT_SAID = (
    "longer than the specified maximum sequence length",  # preflight: beyond-positions
    "different amounts of desirable",  # ratings: uneven-ratings
    "new PAD/BOS/EOS tokens",  # tokenizer: pad_token
    "is deprecated",  # knobs: deprecated options
)
#: What differs from row to row in one and the same warning.
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_LONGEST = 300


@dataclass
class Heard:
    """Gather warnings.

    Args:
        told: the first words of every warning and how often it came, by what all of its kind share.
    """

    told: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Count one warning."""
        text = " ".join(text.removeprefix("[RANK 0] ").split())
        if any(words in text for words in _NOT_SAID):
            return
        kind = _VARIES.sub("", text)
        first, count = self.told.get(kind, (text, 0))
        self.told[kind] = (first, count + 1)

    def notices(self, trainer: str) -> tuple[Notice, ...]:
        """Return one counted remark per kind of warning.

        Args:
            trainer: the trainer that prepared the rows.
        """
        return tuple(
            Notice(
                code="library-warning",
                count=count,
                message=f"trl {trainer} warned {count} time{'' if count == 1 else 's'} while it "
                f"prepared the rows: {_shortened(text)}",
            )
            for text, count in self.told.values()
        )


@contextmanager
def warnings_heard(scratch: Path) -> Iterator[Heard]:
    """Yield what is heard in the block; it is complete when the block has ended.

    Workers forked inside write to the same file, a line at a time.

    Args:
        scratch: folder for that file.
    """
    heard = Heard()
    scratch.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=scratch)
    try:
        with _listening(handle):
            yield heard
    finally:
        os.close(handle)
        for line in Path(name).read_text(encoding="utf-8").splitlines():
            heard.add(json.loads(line))
        Path(name).unlink()


class _Writer(logging.Handler):
    """Append the words of a warning to a file, one whole line per write."""

    def __init__(self, handle: int) -> None:
        super().__init__(logging.WARNING)
        self._file = handle

    def emit(self, record: logging.LogRecord) -> None:
        self.write(record.getMessage())

    def write(self, text: str) -> None:
        os.write(self._file, (json.dumps(text) + "\n").encode())


@contextmanager
def _listening(handle: int) -> Iterator[None]:
    from accelerate.logging import MultiProcessAdapter

    writer = _Writer(handle)
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    before = [(one, one.handlers, one.propagate, one.level) for one in loggers]
    once: list[Any] = [MultiProcessAdapter, logging.Logger]
    said_once = [(home, home.__dict__.get("warning_once")) for home in once]

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, (FutureWarning, DeprecationWarning, PendingDeprecationWarning)):
            writer.write(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        try:
            for one in loggers:
                one.handlers, one.propagate = [writer], False
                one.setLevel(logging.WARNING)
            for home, _ in said_once:
                home.warning_once = _every_time
            yield
        finally:
            for one, handlers, propagate, level in before:
                one.handlers, one.propagate = handlers, propagate
                one.setLevel(level)
            for home, method in said_once:
                if method is None:
                    del home.warning_once
                else:
                    home.warning_once = method


def _every_time(self: Any, *args: Any, **kwargs: Any) -> None:
    """Warn as ``warning_once`` does, of every row: what is said once cannot be counted."""
    self.warning(*args, **kwargs)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} ..."
