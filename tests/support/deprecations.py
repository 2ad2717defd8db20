"""Hears what libraries say of options that are on their way out: warnings and log lines alike."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("trl", "transformers", "peft", "accelerate")


class _Ear(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())


@contextmanager
def deprecations() -> Iterator[list[str]]:
    """Collect every deprecation that users are told of in the block; filled when it ends.

    Python's own ``DeprecationWarning`` is for authors of libraries and is left out.
    """
    heard: list[str] = []
    found: list[str] = []
    ear = _Ear(heard)
    # transformers says some things once a process: earlier tests may have had them said.
    once = getattr(logging.Logger, "warning_once", None)
    if once is not None:
        once.cache_clear()
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(ear)
    shown = [w for w in caught if not issubclass(w.category, DeprecationWarning)]
    found += [said for said in (*heard, *(str(w.message) for w in shown)) if "deprecat" in said]
