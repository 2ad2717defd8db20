"""Finds the place where a JSON or JSON Lines file is broken, so that an error can name it.

Runs only after the data set library has refused a file; it loads nothing.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: What opens a compressed file, by its ending.
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def first_fault(path: Path) -> str | None:
    """Return what is wrong with a JSON or JSON Lines file and on which line, or None.

    Args:
        path: the file, ``.gz``, ``.bz2`` and ``.xz`` allowed; nothing is found in a ``.zst``. It
            is JSON when its first character is ``[`` or its whole text is one value; else one
            value per line is expected.
    """
    if path.suffix.lower() == ".zst":
        return None
    try:
        with _open(path) as lines:
            head = next((line for _, line in lines if line.strip()), "")
        if head.lstrip().startswith("["):
            return _fault_of_document(path)
        return _fault_of_lines(path)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text ({error.reason} at byte {error.start})"
    except PermissionError:
        raise
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        return f"is damaged: {error}"


@contextmanager
def _open(path: Path) -> Iterator[Iterator[tuple[int, str]]]:
    """Yield an iterator over (line number from 1, text)."""
    opener = _OPENERS.get(path.suffix.lower(), open)
    with opener(path, "rt", encoding="utf-8-sig") as file:
        yield enumerate(file, start=1)


def _fault_of_document(path: Path) -> str | None:
    with _open(path) as lines:
        text = "".join(line for _, line in lines)
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        return f"is broken JSON on line {error.lineno}: {error.msg}"
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            return f"holds {_kind(row)} as row {index + 1}, expected an object with named columns"
    return None


def _fault_of_lines(path: Path) -> str | None:
    with _open(path) as lines:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                return f"is broken JSON on line {number}: {error.msg}"
            if not isinstance(row, dict):
                return f"holds {_kind(row)} on line {number}, expected an object per line"
    return None


def _kind(value: object) -> str:
    names = {str: "a string", list: "a list", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
