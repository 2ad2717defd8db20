"""Reads the prepared rows a probe needs into memory, and the facts of what TRL made of them.

Rows are copied out of the memory-mapped file, so that TRL's own ``map`` calls write no cache file.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from autotune.probe.child.batches import RowFacts

SOURCE_COLUMN = "autotune_row"


def take_rows(rows_dir: str, indices: list[int], pretruncate_tokens: int | None) -> Any:
    """Return the chosen prepared rows as an in-memory data set.

    Args:
        rows_dir: folder written by the preparation (columns ``input_ids`` and ``labels``).
        indices: rows, in order.
        pretruncate_tokens: cut every row to this many tokens; None leaves them whole.
    """
    import datasets

    datasets.disable_caching()
    stored = datasets.load_from_disk(rows_dir).select_columns(["input_ids", "labels"])
    chosen = stored.select(indices).to_dict()
    cut = slice(None, pretruncate_tokens)
    kept = [
        (ids[cut], labels[cut], source)
        for ids, labels, source in zip(chosen["input_ids"], chosen["labels"], indices, strict=True)
        if any(label != -100 for label in labels[cut])
    ]
    return datasets.Dataset.from_dict(
        {
            "input_ids": [k[0] for k in kept],
            "labels": [k[1] for k in kept],
            SOURCE_COLUMN: [k[2] for k in kept],
        }
    )


def facts_of(prepared: Any, *, padding_free: bool) -> RowFacts:
    """Measure the rows a trainer prepared.

    Args:
        prepared: the trainer's ``train_dataset``.
        padding_free: whether the collator masks the first label of every document (TRL does when
            it flattens); otherwise only the row's first label is never predicted.
    """
    columns = prepared.column_names
    data = prepared.to_dict()
    tokens = np.asarray([len(ids) for ids in data["input_ids"]], dtype=np.int64)
    parts = data["seq_lengths"] if "seq_lengths" in columns else [[int(n)] for n in tokens]
    sequences = np.asarray([len(p) for p in parts], dtype=np.int64)
    labels = np.asarray(
        [
            _trained(row, documents if padding_free else documents[:1])
            for row, documents in zip(data["labels"], parts, strict=True)
        ],
        dtype=np.int64,
    )
    return RowFacts(
        tokens=tokens,
        labels=labels,
        sequences=sequences,
        longest=np.asarray([max(p, default=0) for p in parts], dtype=np.int64),
        source=np.asarray(
            data[SOURCE_COLUMN] if SOURCE_COLUMN in columns else [-1] * tokens.size, dtype=np.int64
        ),
    )


def _trained(labels: list[int], documents: list[int]) -> int:
    """Count the labels of a row that are trained on: the first token of a document never is."""
    starts = {0, *itertools.accumulate(documents[:-1])}
    return sum(label != -100 and at not in starts for at, label in enumerate(labels))
