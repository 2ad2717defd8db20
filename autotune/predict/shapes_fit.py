"""Extends what was followed for some batches of a candidate to batches of other sizes.

What a place of the step holds, and what the step does, is a sum of terms that grow with rows,
width, their products and labels, and with the tiles TRL's head works in. The terms are fitted to
the batches that were traced; whether they hold is tried on others that were traced too. Pure
arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.traced_step import Work, WorkKind
from autotune.predict.followed import Followed
from autotune.predict.ledger import COMPONENTS, Height, Segment
from autotune.predict.request import Documents, Judged, Pair, Row

FloatArray = NDArray[np.float64]
#: Kind and dtype of every sum of work: of the micro-step, and of the update.
Kinds = list[list[tuple[WorkKind, str]]]

#: Positions TRL's head works on at once (trl/kernels/chunked_logprob.py, ``TOKEN_CHUNK_SIZE``).
_TILE = 4096
#: Batches that are traced to try a fit, beside those it is made of.
TRIED = 3
_WORK = ("flops", "moved_bytes", "launches")


@dataclass(frozen=True)
class BatchSize:
    """What a batch's step depends on.

    Args:
        rows: tensor rows.
        width: columns.
        labels: positions that are trained on.
        longest: tokens of the longest document, farther than which nothing attends.
    """

    rows: int
    width: int
    labels: int
    longest: int

    @property
    def terms(self) -> tuple[float, ...]:
        """What bytes and work grow with."""
        cells = self.rows * self.width
        return (
            1.0,
            self.rows,
            self.width,
            cells,
            cells * self.width,
            cells * self.longest,
            self.width * self.width,
            self.labels,
            # the last column predicts nothing
            min(self.rows * (self.width - 1), _TILE),
            min(self.labels, _TILE),
        )


def joins(options: Mapping[str, Any]) -> bool:
    """Whether TRL's collator joins the rows of a batch into one; argument as for `size_of`."""
    packs = bool(options.get("packing")) and options.get("packing_strategy") != "wrapped"
    return packs or bool(options.get("padding_free"))


def size_of(rows: Sequence[Row], options: Mapping[str, Any]) -> tuple[BatchSize, str]:
    """Return how large a batch is, and what kind: only batches of one kind do the same.

    Args:
        rows: its rows.
        options: TRL options, which decide whether rows are joined into one.
    """
    lengths = [_lengths(row) for row in rows]
    sides = [side for tokens, _ in lengths for side in tokens]
    labels = sum(trained for _, trained in lengths)
    if joins(options):
        documents = [n for row in rows if isinstance(row, Documents) for n in row.tokens]
        return BatchSize(1, sum(sides), labels, max(documents)), f"joined {len(documents) > 1}"
    size = BatchSize(len(sides), max(sides), labels, max(sides))
    judged = {row.desirable for row in rows if isinstance(row, Judged)}
    return size, f"padded {min(sides) < max(sides)} {sorted(judged)}"


def _lengths(row: Row) -> tuple[list[int], int]:
    """Return the tokens of every tensor row a row makes, and its trained positions."""
    if isinstance(row, Documents):
        tokens = sum(row.tokens)
        return [tokens], tokens if row.label_tokens is None else min(tokens, row.label_tokens)
    if isinstance(row, Pair):
        return [row.prompt + row.chosen, row.prompt + row.rejected], row.chosen + row.rejected
    return [row.prompt + row.completion], row.completion


def chosen(sizes: Sequence[BatchSize]) -> list[int]:
    """Return the batches to trace, so that the others lie between them; all, where they are few.

    Each next one is farthest from those chosen before, on a scale of ratios; the last `TRIED` are
    for trying.

    Args:
        sizes: of all batches.
    """
    terms = np.array([s.terms for s in sizes])
    # one more than there are terms that differ
    count = int(np.linalg.matrix_rank(terms / np.abs(terms).max(axis=0))) + 1 + TRIED
    if len(sizes) <= count:
        return list(range(len(sizes)))
    points = np.log([[s.rows, s.width, s.rows * s.width, s.labels + 1.0, s.longest] for s in sizes])
    found = [int(np.argmax(points[:, 2]))]
    distance = np.full(len(sizes), np.inf)
    while len(found) < count:
        distance = np.minimum(distance, np.abs(points - points[found[-1]]).sum(axis=1))
        found.append(int(np.argmax(distance)))
    return found


def fitted(
    sizes: Sequence[BatchSize], seen: Sequence[Followed], wanted: Sequence[BatchSize]
) -> list[Followed] | None:
    """Return what would be seen of other batches; None when the traced ones are not alike.

    Args:
        sizes: of the traced batches.
        seen: what was seen of them.
        wanted: sizes of the others.
    """
    first = seen[0]
    segments = [h.segment for h in first.heights]
    kinds: Kinds = [
        [(w.kind, w.dtype) for w in ws] for ws in (first.micro_step, first.optimizer_step)
    ]
    for one in seen:
        order = {h.segment: n for n, h in enumerate(one.heights)}
        same = [[(w.kind, w.dtype) for w in ws] for ws in (one.micro_step, one.optimizer_step)]
        if order.keys() != set(segments) or [set(k) for k in same] != [set(k) for k in kinds]:
            return None
    terms = np.array([s.terms for s in sizes])
    scale = np.abs(terms).max(axis=0)
    # relative errors count, so that small batches are met as well as large ones
    weight = 1.0 / terms[:, 3:4]
    values = np.array([_values(one, segments, kinds) for one in seen])
    solved, *_ = np.linalg.lstsq(terms / scale * weight, values * weight, rcond=1e-10)
    others = np.array([s.terms for s in wanted]) / scale @ solved
    return [_followed(first, row, kinds) for row in others]


def _values(one: Followed, segments: list[Segment], kinds: Kinds) -> FloatArray:
    heights = {h.segment: h.split for h in one.heights}
    sums = [{(w.kind, w.dtype): w for w in ws} for ws in (one.micro_step, one.optimizer_step)]
    work = [
        float(getattr(sums[n][key], name)) for n in (0, 1) for key in kinds[n] for name in _WORK
    ]
    splits = np.concatenate([heights[s] for s in segments])
    return np.concatenate([splits, [one.held_bytes, one.offloaded_bytes], work])


def _followed(pattern: Followed, row: FloatArray, kinds: Kinds) -> Followed:
    count, width = len(pattern.heights), len(COMPONENTS)
    splits = np.maximum(row[: count * width].reshape(count, width), 0.0)
    held, hosted, *work = row[count * width :]
    numbers = iter(work)
    sums = [
        tuple(
            Work.model_validate(
                {"kind": kind, "dtype": dtype}
                | {name: max(0, round(float(next(numbers)))) for name in _WORK}
            )
            for kind, dtype in kinds[n]
        )
        for n in (0, 1)
    ]
    return replace(
        pattern,
        heights=tuple(
            Height(h.segment, split) for h, split in zip(pattern.heights, splits, strict=True)
        ),
        held_bytes=max(0.0, float(held)),
        offloaded_bytes=max(0.0, float(hosted)),
        micro_step=sums[0],
        optimizer_step=sums[1],
    )
