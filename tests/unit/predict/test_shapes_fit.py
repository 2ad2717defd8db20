"""Batches of many sizes fitted to those of a few."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.core.traced_step import Work
from autotune.predict.followed import Followed
from autotune.predict.ledger import COMPONENTS, Height, Segment
from autotune.predict.request import Documents, Judged, Pair
from autotune.predict.shapes_fit import TRIED, BatchSize, chosen, fitted, size_of

GRID = [BatchSize(b, w, b * w // 2, w) for b in (1, 2, 3, 4, 8, 16) for w in (64, 200, 512, 2048)]


def seen(size: BatchSize, segment: str = "forward") -> Followed:
    """A step whose bytes and work are sums of known terms, a tile of 4096 positions among them."""
    cells = size.rows * size.width
    split = np.zeros(len(COMPONENTS))
    split[0], split[4] = 5000.0, 70.0 * cells + 0.5 * cells * size.width
    split[5] = 9.0 * min(size.rows * (size.width - 1), 4096) + 3.0 * size.labels
    work = (Work(kind="matmul", dtype="bf16", flops=11 * cells, moved_bytes=cells, launches=4),)
    height = Height(Segment(segment), split)  # type: ignore[arg-type]
    return Followed((height,), 5000.0, 2.0 * cells, work, work)


def test_others_are_fitted_to_those_that_were_traced() -> None:
    picked = chosen(GRID)
    others = [size for n, size in enumerate(GRID) if n not in picked]
    sizes = [GRID[n] for n in picked]
    found = fitted(sizes, [seen(s) for s in sizes], others)
    assert found is not None
    for size, one in zip(others, found, strict=True):
        real = seen(size)
        assert pytest.approx(real.heights[0].total_bytes, rel=1e-3) == one.heights[0].total_bytes
        assert pytest.approx(real.micro_step[0].flops, rel=1e-3) == one.micro_step[0].flops
        assert pytest.approx(real.offloaded_bytes, rel=1e-3) == one.offloaded_bytes


def test_few_batches_are_all_traced_and_of_many_the_largest_first() -> None:
    assert [0, 1, 2] == chosen(GRID[:3])
    picked = chosen(GRID)
    assert len(BatchSize(1, 1, 1, 1).terms) + TRIED >= len(set(picked)) > TRIED
    assert BatchSize(16, 2048, 16384, 2048) == GRID[picked[0]]


def test_steps_that_do_different_things_are_not_fitted() -> None:
    steps = [seen(GRID[0]), seen(GRID[1], "backward")]
    assert fitted(GRID[:2], steps, GRID[2:]) is None


def test_a_batch_is_as_large_as_its_tensors() -> None:
    rows = (Documents(tokens=(30, 10), label_tokens=8), Documents(tokens=(20,)))
    assert BatchSize(2, 40, 28, 40) == size_of(rows, {})[0]
    packed = {"packing": True, "packing_strategy": "bfd"}
    assert BatchSize(1, 60, 28, 30) == size_of(rows, packed)[0]
    pairs = (Pair(prompt=10, chosen=5, rejected=9),)
    assert BatchSize(2, 19, 14, 19) == size_of(pairs, {})[0]
    assert BatchSize(1, 12, 7, 12) == size_of((Judged(prompt=5, completion=7),), {})[0]


def test_batches_with_and_without_padding_are_of_two_kinds() -> None:
    even, ragged = (Documents(tokens=(9,)),) * 2, (Documents(tokens=(9,)), Documents(tokens=(5,)))
    assert size_of(even, {})[1] != size_of(ragged, {})[1]
    assert size_of(even, {"padding_free": True})[1] == size_of(ragged, {"padding_free": True})[1]
