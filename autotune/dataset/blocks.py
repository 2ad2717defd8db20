"""Loads the rows of a TRL ``datasets:`` block, as TRL itself does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput, first_line, nearest
from autotune.core.job import DatasetSource
from autotune.dataset.builders import BUILDERS
from autotune.dataset.files import load_files, load_one, neighbour

if TYPE_CHECKING:
    from datasets import Dataset

_BUILDER_NAMES = frozenset(BUILDERS.values())


def load_blocks(source: DatasetSource, split: str, cache_dir: Path, first: int | None) -> Dataset:
    """Load a mixture as ``trl.get_dataset`` does (trl 1.16, ``scripts/utils.py``)."""
    import datasets

    blocks = source.blocks or ()
    if split != source.train_split:
        raise BadInput(
            f"a datasets: block has no split {split!r}; it has 'train' only.",
            "Set test_split_size to hold rows out for evaluation, or eval_strategy: 'no'.",
        )
    if not blocks:
        raise BadInput("the datasets: block is empty, expected at least one entry with a path.")
    parts = [_load_block(block, cache_dir, first) for block in blocks]
    fractions = [block.get("fraction") for block in blocks]
    known = [fraction for fraction in fractions if fraction is not None]
    if known and first is not None:
        raise BadInput("fraction cannot be used where the datasets: block is read as a stream.")
    if known and len(known) < len(fractions):
        raise BadInput("fraction must be set for every entry of the datasets: block or for none.")
    if known:
        _check_fractions(known)
        weights = [fraction / sum(known) for fraction in known]
        total = min(len(p) / w for p, w in zip(parts, weights, strict=True) if w > 0)
        parts = [p.select(range(round(w * total))) for p, w in zip(parts, weights, strict=True)]
    try:
        whole = datasets.concatenate_datasets(parts)
        return whole if first is None else whole.select(range(min(first, len(whole))))
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"the entries of the datasets: block have different columns: {first_line(error)}",
            "Select the same columns: in each entry.",
        ) from error


def _check_fractions(fractions: list[Any]) -> None:
    """Check that shares of a mixture are numbers that divide something.

    Raises:
        BadInput: one is no number or below zero, or all are zero.
    """
    numbers = [f for f in fractions if isinstance(f, int | float) and f >= 0]
    if len(numbers) < len(fractions) or not sum(numbers) > 0:
        shown = ", ".join(map(repr, fractions))
        raise BadInput(
            f"fraction is {shown} in the datasets: block, expected numbers above zero.",
            "They are shares of the mixture and need not add up to 1.",
        )


def block_paths(block: dict[str, Any]) -> list[str]:
    """Return the paths an entry names, patterns included."""
    files = block.get("data_files")
    if isinstance(files, dict):
        files = [
            f for value in files.values() for f in ([value] if isinstance(value, str) else value)
        ]
    if isinstance(files, str):
        files = [files]
    if files:
        base = Path(block.get("data_dir") or "")
        return [str(base / file) for file in files]
    return [str(block.get("data_dir") or block.get("path", ""))]


def _load_block(block: dict[str, Any], cache_dir: Path, first: int | None) -> Dataset:
    name = block.get("path")
    if not isinstance(name, str) or not name:
        raise BadInput(f"an entry of the datasets: block has no path: {block}.")
    split = block.get("split") or "train"
    if name in _BUILDER_NAMES and not Path(name).exists():
        if not block.get("data_files") and not block.get("data_dir"):
            raise BadInput(
                f"an entry of the datasets: block reads {name} files and names none.",
                "Add data_files: with the path of the file.",
            )
        paths = [Path(text).expanduser() for text in block_paths(block)]
        for path in paths:
            if not path.exists() and "*" not in path.name:
                raise BadInput(f"data set {path} does not exist{neighbour(path)}.")
        files = [p for p in paths if p.is_file()]
        extra = {k: block[k] for k in ("data_dir",) if block.get(k)}
        rows = load_files(
            name,
            block.get("data_files"),
            files,
            split,
            cache_dir,
            shown=str(paths[0]),
            columns=extra,
            first=first,
        )
    else:
        rows = load_one(name, block.get("name"), split, cache_dir, first)
    columns = block.get("columns")
    if columns:
        missing = [column for column in columns if column not in rows.column_names]
        if missing:
            raise BadInput(
                f"data set {name} has no column {missing[0]!r}, "
                f"it has {', '.join(rows.column_names)}{nearest(missing[0], rows.column_names)}."
            )
        rows = rows.select_columns(columns)
    return rows
