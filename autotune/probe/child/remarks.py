"""Collects what the libraries remark while a candidate is built and run: warnings and log lines.

TRL says through its logger that it ignores an option; Python's warnings carry the rest.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

#: Libraries whose warnings are about the candidate.
_LOGGERS = ("trl", "transformers", "peft", "accelerate")
_MOST = 20


class _Ear(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(f"{record.name.partition('.')[0]}: {record.getMessage()}")


@contextmanager
def listening(into: list[str]) -> Iterator[None]:
    """Add every remark made in the block to a list, each once, at most twenty.

    Args:
        into: filled when the block ends, however it ends.
    """
    logged: list[str] = []
    ear = _Ear(logged)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(ear)
        raised = [f"{w.category.__name__}: {w.message}" for w in caught]
        into.extend(list(dict.fromkeys([*logged, *raised]))[:_MOST])
