"""Measures prepared rows: how long each is, which tokens are trained on, what cannot be right.

Works on Arrow buffers in batches, so that a million rows need seconds and little memory; it
tokenises nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.core.errors import BadInput
from autotune.core.lengths import IntArray, Lengths

if TYPE_CHECKING:
    from datasets import Dataset

#: Rows read at a time.
BATCH_ROWS = 10_000
#: TRL's label for tokens that are not trained on.
IGNORED = -100


@dataclass
class _Growing:
    """Collect arrays batch by batch."""

    parts: list[IntArray] = field(default_factory=list)

    def add(self, part: Any) -> None:
        self.parts.append(np.asarray(part, dtype=np.int32))

    def whole(self) -> IntArray:
        parts = self.parts or [np.zeros(0, dtype=np.int32)]
        return np.concatenate(parts).astype(np.int64)


def measure(rows: Dataset, *, vocabulary: int | None) -> Lengths:
    """Return the lengths of tokenised rows; without a ``labels`` column every token is one.

    Args:
        rows: columns ``input_ids`` and, if some tokens are not trained on, ``labels`` (-100 there).
        vocabulary: rows of the model's input embedding; ids must be below it. None: not checked.

    Raises:
        BadInput: labels of another length than the ids, or ids the embedding does not have; with
            the first row and how many there are.
    """
    labelled = "labels" in rows.column_names
    columns = ["input_ids", "labels"] if labelled else ["input_ids"]
    tokens, labels, firsts = _Growing(), _Growing(), _Growing()
    positions = np.zeros(0, dtype=np.int64)
    start = 0
    for table in rows.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS):
        ids, lengths = _flat(table["input_ids"], start)
        tokens.add(lengths)
        if vocabulary is not None:
            _check_ids(ids, lengths, start, vocabulary)
        marks = None
        if labelled:
            values, label_lengths = _flat(table["labels"], start)
            _check_same_length(lengths, label_lengths, start)
            marks = values != IGNORED
            if vocabulary is not None:
                _check_labels(values, lengths, start, vocabulary)
        counts, first, at = _labels(lengths, marks)
        labels.add(counts)
        firsts.add(first)
        positions = _added(positions, at)
        start += len(lengths)
    first_labels = firsts.whole()
    return Lengths(
        tokens=tokens.whole(),
        labels=labels.whole(),
        label_positions=positions,
        first_labels=first_labels if first_labels.any() else None,
    )


def measure_sides(
    rows: Dataset, chosen: Iterable[str], rejected: Iterable[str], *, vocabulary: int | None
) -> Lengths:
    """Return the lengths of prepared preference rows, whose sides are spread over columns.

    Args:
        rows: columns of token ids as TRL's preference trainers prepare them.
        chosen: columns whose tokens together make the chosen side, the last one trained on.
        rejected: the same for the rejected side; empty when rows have one side only.
        vocabulary: rows of the model's input embedding, None when ids are not checked.

    Raises:
        BadInput: ids the embedding does not have, with the first row and how many there are.
    """
    start = 0
    names = tuple(dict.fromkeys((*chosen, *rejected)))
    sizes = {name: _Growing() for name in names}
    for table in rows.select_columns(list(names)).with_format("arrow").iter(batch_size=BATCH_ROWS):
        for name in names:
            ids, counts = _flat(table[name], start)
            sizes[name].add(counts)
            if vocabulary is not None:
                _check_ids(ids, counts, start, vocabulary)
        start += len(table)
    whole = {name: grown.whole() for name, grown in sizes.items()}
    sides = [[whole[name] for name in side] for side in (tuple(chosen), tuple(rejected)) if side]
    lengths = [np.sum(side, axis=0).astype(np.int64) for side in sides]
    trained = np.sum([side[-1] for side in sides], axis=0).astype(np.int64)
    tokens = np.max(lengths, axis=0).astype(np.int64)
    first = np.max(lengths[:1], axis=0) - sides[0][-1]
    positions = np.zeros(0, dtype=np.int64)
    for side, total in zip(sides, lengths, strict=True):
        positions = _added(positions, _spread(total - side[-1], total))
    both = len(sides) == 2
    return Lengths(
        tokens=tokens,
        labels=trained,
        label_positions=positions,
        first_labels=first.astype(np.int64) if first.any() else None,
        chosen=lengths[0] if both else None,
        rejected=lengths[1] if both else None,
    )


def real_tokens(rows: Dataset, *, pad_id: int, pad_is_eos: bool) -> IntArray | None:
    """Return int64[n], tokens of every given row that are not padding; None when none is padded.

    Args:
        rows: tokenised rows as given. With an ``attention_mask`` column its zeros are padding; else
            a run of pad tokens at the end is (its first is the end token where they are the same).
        pad_id: id of the pad token.
        pad_is_eos: whether that is the end token too.
    """
    masked = "attention_mask" in rows.column_names
    columns = ["input_ids", "attention_mask"] if masked else ["input_ids"]
    real = _Growing()
    padded = False
    start = 0
    for table in rows.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS):
        values, lengths = _flat(table["input_ids"], start)
        if masked:
            mask, mask_lengths = _flat(table["attention_mask"], start)
            pads = np.minimum(_sums(mask == 0, mask_lengths), lengths)
        else:
            pads = _ending_pads(values, lengths, pad_id, pad_is_eos)
        start += len(lengths)
        padded = padded or bool(pads.any())
        real.add(lengths - pads)
    return real.whole() if padded else None


def _ending_pads(values: Any, lengths: IntArray, pad_id: int, pad_is_eos: bool) -> IntArray:
    """Return how many pad tokens every row ends with; the first may be its end token."""
    pads = np.zeros_like(lengths)
    ends = np.cumsum(lengths)
    some = np.flatnonzero(lengths > 0)
    for row in some[values[ends[some] - 1] == pad_id]:
        other = values[ends[row] - lengths[row] : ends[row]] != pad_id
        run = int(other[::-1].argmax()) if other.any() else len(other)
        pads[row] = max(run - pad_is_eos, 0)
    return pads


def _flat(column: Any, start: int) -> tuple[Any, IntArray]:
    """Return the values of a list column end to end and the length of every list."""
    array = column.combine_chunks()
    lengths = np.asarray(array.value_lengths().fill_null(0), dtype=np.int64)
    values = array.flatten()
    if values.null_count:
        holes = np.flatnonzero(_sums(np.asarray(values.is_null()), lengths))
        raise BadInput(
            f"row {start + int(holes[0]) + 1} has null among its token ids or labels "
            "(rows count from 1).",
            "Give whole numbers only.",
        )
    return np.asarray(values), lengths


def _check_ids(ids: Any, lengths: IntArray, start: int, vocabulary: int) -> None:
    if not len(ids) or (ids.min() >= 0 and ids.max() < vocabulary):
        return
    wrong = (ids < 0) | (ids >= vocabulary)
    rows = np.flatnonzero(_sums(wrong, lengths))
    raise BadInput(
        f"row {start + int(rows[0]) + 1} has the token id {int(ids[wrong.argmax()])}, but the "
        f"model's embedding has {vocabulary} rows (ids 0 to {vocabulary - 1}); "
        f"{len(rows)} of the rows up to {start + len(lengths)} have such ids (rows count from 1).",
        "Use the tokenizer that belongs to the model.",
    )


def _check_labels(values: Any, lengths: IntArray, start: int, vocabulary: int) -> None:
    if not len(values) or (values.min() >= 0 and values.max() < vocabulary):
        return
    wrong = ((values < 0) | (values >= vocabulary)) & (values != IGNORED)
    rows = np.flatnonzero(_sums(wrong, lengths))
    if len(rows):
        raise BadInput(
            f"row {start + int(rows[0]) + 1} has the label {int(values[wrong.argmax()])}, expected "
            f"{IGNORED} or a token id from 0 to {vocabulary - 1}; "
            f"{len(rows)} of the rows up to {start + len(lengths)} are so (rows count from 1).",
            "Give token ids as labels, -100 where nothing is trained on.",
        )


def _check_same_length(tokens: IntArray, labels: IntArray, start: int) -> None:
    wrong = np.flatnonzero(tokens != labels)
    if len(wrong):
        row = int(wrong[0])
        raise BadInput(
            f"row {start + row + 1} has {tokens[row]} input_ids but {labels[row]} labels; "
            f"{len(wrong)} of the rows up to {start + len(tokens)} differ so (rows count from 1).",
            "Give one label per token, -100 where it is not trained on.",
        )


def _labels(lengths: IntArray, marks: Any) -> tuple[IntArray, IntArray, IntArray]:
    """Return labels per row, the first label's position per row, and labels per position."""
    if marks is None or bool(marks.all()):
        return lengths, np.zeros_like(lengths), _spread(np.zeros_like(lengths), lengths)
    starts = np.cumsum(lengths) - lengths
    counts = _sums(marks, lengths)
    places = np.flatnonzero(marks)
    row_of = np.repeat(np.arange(len(lengths)), counts)
    at = places - starts[row_of]
    first = lengths.copy()
    some = counts > 0
    first[some] = at[(np.cumsum(counts) - counts)[some]]
    return counts, first, np.bincount(at).astype(np.int64)


def _spread(begin: IntArray, end: IntArray) -> IntArray:
    """Return for every position how many of the spans [begin, end) cover it."""
    size = int(end.max(initial=0))
    change = np.bincount(begin, minlength=size + 1)[: size + 1].astype(np.int64)
    change -= np.bincount(end, minlength=size + 1)[: size + 1]
    return np.cumsum(change)[:size].astype(np.int64)


def _sums(flags: Any, lengths: IntArray) -> IntArray:
    """Return how many flags are set in every row."""
    total = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
    ends = np.cumsum(lengths)
    return np.asarray(total[ends] - total[ends - lengths], dtype=np.int64)


def _added(one: IntArray, other: IntArray) -> IntArray:
    """Add two counts by position that may differ in length."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    longer = longer.copy()
    longer[: len(shorter)] += shorter
    return longer
