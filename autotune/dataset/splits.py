"""Picks the rows of a split expression out of what was loaded, or names the splits there are."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput, nearest

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def pick(loaded: DatasetDict, split: str, shown: str) -> Dataset:
    """Return the rows of a split expression such as ``train``, ``train[:10%]`` or ``a+b``."""
    import datasets

    parts = []
    for part in split.split("+"):
        name, _, cut = part.strip().partition("[")
        check_split(name, list(loaded), shown)
        rows = loaded[name]
        if cut:
            try:
                wanted = datasets.ReadInstruction.from_spec(f"{name}[{cut}")
                (absolute,) = wanted.to_absolute({name: len(rows)})
            except (ValueError, AssertionError) as error:
                raise BadInput(f"split {split!r} is not understood: {error}") from error
            stop = len(rows) if absolute.to is None else absolute.to
            rows = rows.select(range(absolute.from_ or 0, stop))
        parts.append(rows)
    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)


def take(loaded: Any, split: str, shown: str, count: int) -> Dataset:
    """Return the first rows of a split of a stream, as a table in memory.

    Args:
        loaded: a ``datasets.IterableDatasetDict``.
        split: the name of one split; a stream has no slices.
        shown: what the data set is called in messages.
        count: most rows.
    """
    import datasets

    if not re.fullmatch(r"\w+", split):
        raise BadInput(
            f"split {split!r} cannot be read as a stream, expected the name of one split.",
            "Leave streaming out, or name a whole split.",
        )
    check_split(split, list(loaded), shown)
    rows = list(islice(iter(loaded[split]), count))
    if loaded[split].features is None:
        return datasets.Dataset.from_list(rows, on_mixed_types="use_json")
    return datasets.Dataset.from_list(rows, features=loaded[split].features)


def check_split(name: str, found: list[str], shown: str) -> None:
    if name not in found:
        raise BadInput(
            f"data set {shown} has no split {name!r}; it has {', '.join(map(repr, found))}"
            f"{nearest(name, found)}.",
            "Choose one with --dataset-train-split or --dataset-test-split.",
        )
