"""Reads the prepared rows a probe needs into memory, and the facts of what TRL made of them.

Rows are copied out of the memory-mapped file, so that TRL's own ``map`` calls write no cache file.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.core.packing import pack
from autotune.dataset.trl_rows import PREPARED_COLUMNS
from autotune.probe.child.batches import IntArray, RowFacts

SOURCE_COLUMN = "autotune_row"


def take_rows(
    trainer: Trainer, rows_dir: str, indices: list[int], pretruncate_tokens: int | None
) -> Any:
    """Return the chosen prepared rows as an in-memory data set.

    Args:
        trainer: whose preparation wrote them.
        rows_dir: folder written by the preparation, with the trainer's prepared columns.
        indices: rows, in order.
        pretruncate_tokens: cut every row of SFT to this many tokens; None leaves them whole.
    """
    import datasets

    datasets.disable_caching()
    stored = datasets.load_from_disk(rows_dir)
    columns = [name for name in PREPARED_COLUMNS[trainer] if name in stored.column_names]
    chosen = {**stored.select_columns(columns).select(indices).to_dict(), SOURCE_COLUMN: indices}
    if trainer is Trainer.SFT:
        chosen = _cut(chosen, pretruncate_tokens)
    return datasets.Dataset.from_dict(chosen)


def _cut(rows: dict[str, list[Any]], length: int | None) -> dict[str, list[Any]]:
    """Cut SFT rows and leave out those without a label."""
    cut = slice(None, length)
    kept = [
        (ids[cut], labels[cut], source)
        for ids, labels, source in zip(*rows.values(), strict=True)
        if any(label != -100 for label in labels[cut])
    ]
    return {name: [row[at] for row in kept] for at, name in enumerate(rows)}


def facts_of(
    trainer: Trainer,
    prepared: Any,
    *,
    flattens: bool = False,
    max_length: int | None = None,
    wrapped: Any | None = None,
) -> RowFacts:
    """Measure the rows a trainer prepared, as its collator will cut them.

    Args:
        trainer: which trainer.
        prepared: the trainer's ``train_dataset``.
        flattens: SFT: whether the collator masks the first label of every document (TRL does when
            it flattens); otherwise only the row's first label is never predicted.
        max_length: DPO and KTO: tokens their collator cuts a sequence to; None for none. SFT has
            cut its rows before, Reward has left out longer ones.
        wrapped: SFT: the rows before they were joined, where TRL joined them without a trace of
            their borders (``packing_strategy="wrapped"``); a packed row then counts the documents
            that begin in it.

    Raises:
        BadInput: no row is left.
    """
    if not len(prepared):
        raise BadInput(
            "no row is left to train on: max_length leaves no room for any of them.",
            "Raise max_length.",
        )
    data = prepared.to_dict()
    if trainer is Trainer.SFT:
        facts = _documents(data, flattens)
        if wrapped is None or max_length is None:
            return facts
        joined = pack(_sizes(wrapped["input_ids"]), max_length, "wrapped")
        return replace(facts, sequences=joined.sequences)
    sizes = {name: _sizes(ids) for name, ids in data.items() if name.endswith("_ids")}
    prompts = sizes.get("prompt_ids", np.zeros(len(prepared), dtype=np.int64))
    answers = ("completion_ids",) if trainer is Trainer.KTO else ("chosen_ids", "rejected_ids")
    whole = [prompts + sizes[name] for name in answers]
    limit = max_length if trainer is not Trainer.REWARD else None
    sides = whole if limit is None else [np.minimum(side, limit) for side in whole]
    tokens = np.max(sides, axis=0)
    rotates = "KL_completion_ids" in data
    return RowFacts(
        tokens=tokens,
        labels=np.sum([np.maximum(side - prompts, 0) for side in sides], axis=0),
        sequences=np.ones_like(tokens),
        longest=tokens,
        source=np.asarray(data[SOURCE_COLUMN], dtype=np.int64),
        both_sides=np.sum(sides, axis=0) if len(sides) == 2 else None,
        prompts=prompts if rotates else None,
    )


def _documents(data: dict[str, Any], flattens: bool) -> RowFacts:
    """Measure SFT rows, packed or not."""
    tokens = _sizes(data["input_ids"])
    parts = data.get("seq_lengths") or [[int(n)] for n in tokens]
    labels = [
        _trained(row, documents if flattens else documents[:1])
        for row, documents in zip(data["labels"], parts, strict=True)
    ]
    return RowFacts(
        tokens=tokens,
        labels=np.asarray(labels, dtype=np.int64),
        sequences=_sizes(parts),
        longest=np.asarray([max(p, default=0) for p in parts], dtype=np.int64),
        source=np.asarray(data.get(SOURCE_COLUMN, [-1] * tokens.size), dtype=np.int64),
    )


def _sizes(lists: list[Any]) -> IntArray:
    return np.asarray([len(items) for items in lists], dtype=np.int64)


def _trained(labels: list[int], documents: list[int]) -> int:
    """Count the labels of a row that are trained on: the first token of a document never is."""
    starts = {0, *itertools.accumulate(documents[:-1])}
    return sum(label != -100 and at not in starts for at, label in enumerate(labels))
