"""Loads the rows a job names, from files, folders, the hub or a TRL ``datasets:`` block.

Knows where rows are, not what they mean: layouts are recognised elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource
from autotune.dataset.blocks import block_paths, load_blocks
from autotune.dataset.builders import data_suffix
from autotune.dataset.files import load_one

if TYPE_CHECKING:
    from datasets import Dataset


def load_rows(
    source: DatasetSource, split: str, *, cache_dir: Path, first: int | None = None
) -> Dataset:
    """Load one split as a table with at least one row.

    Args:
        source: where the rows come from.
        split: name of the split, ``train[:10%]`` and ``a+b`` included; a single file has only
            ``train``.
        cache_dir: private folder for the Arrow copies the data set library makes of local files;
            hub data sets use the user's own hub cache.
        first: read the source as a stream and take at most this many rows; None loads all.

    Raises:
        BadInput: missing, unreadable, broken or empty, an unknown split, or an unreachable hub.
    """
    if source.blocks is not None:
        rows = load_blocks(source, split, cache_dir, first)
    else:
        rows = load_one(source.path, source.config, split, cache_dir, first)
    if len(rows) == 0:
        raise BadInput(f"{_shown(source)} holds no rows in split {split!r}.")
    return rows


def local_files(source: DatasetSource) -> list[Path] | None:
    """Return every local file the rows come from, sorted; None when some come from the hub.

    Raises:
        BadInput: a file whose name is no UTF-8.
    """
    if source.blocks is not None:
        paths = [path for block in source.blocks for path in block_paths(block)]
    else:
        paths = [source.path]
    files: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            files += [p for p in sorted(path.rglob("*")) if p.is_file()]
            _check_names(path, files)
        elif path.is_file():
            files.append(path)
        else:
            return None
    return files


def _check_names(folder: Path, files: list[Path]) -> None:
    """Stop at a file the data set library cannot name."""
    for file in files:
        shown = os.fsencode(file.name).decode("utf-8", "backslashreplace")
        if shown != file.name:
            raise BadInput(
                f"folder {folder} holds a file called '{shown}', which is no UTF-8.",
                "Rename it, or move it out of the folder.",
            )


def _shown(source: DatasetSource) -> str:
    return source.path if source.blocks is None else "the datasets: block"


def is_tabbed(source: DatasetSource) -> bool:
    """Return whether a file named by itself is separated by tabs, which TRL cannot be told."""
    if source.blocks is None:
        paths = [source.path]
    else:
        paths = [p for b in source.blocks if b.get("path") == "csv" for p in block_paths(b)]
    return any(data_suffix(Path(p)) == ".tsv" and not Path(p).is_dir() for p in paths)
