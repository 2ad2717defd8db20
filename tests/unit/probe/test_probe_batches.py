"""Which micro-batches a probe runs: the worst for memory, whatever order rows come in."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from autotune.core.errors import BadInput
from autotune.probe.child.batches import (
    RowFacts,
    ShapeRule,
    batch_of,
    mixed_batches,
    of_few_shapes,
    warmup_batches,
    worst_batches,
)
from autotune.probe.child.resolve import _check_values, check_has_end
from autotune.probe.child.rows import _trained


def facts(tokens: list[int], labels: list[int]) -> RowFacts:
    """Return rows of one document each."""
    size = len(tokens)
    return RowFacts(
        tokens=np.asarray(tokens, dtype=np.int64),
        labels=np.asarray(labels, dtype=np.int64),
        sequences=np.ones(size, dtype=np.int64),
        longest=np.asarray(tokens, dtype=np.int64),
        source=np.arange(size),
    )


def test_rows_that_are_all_trained_have_one_worst_batch_the_longest() -> None:
    (worst,) = worst_batches(facts([5, 90, 7, 80, 3], [4, 89, 6, 79, 2]), 2)
    assert (1, 3) == worst.rows


def test_one_long_row_beside_label_rich_ones_is_a_worst_batch_of_its_own() -> None:
    # A padded batch is as wide as its longest row; kernels that score labelled positions only
    # need most when the others are full of labels.
    tokens, labels = [1000] * 8 + [200] * 50, [2] * 8 + [190] * 50
    batches = worst_batches(facts(tokens, labels), 8)
    shapes = [(max(tokens[r] for r in b.rows), b.label_tokens) for b in batches]
    assert (1000, 16) in shapes
    assert (1000, 2 + 7 * 190) in shapes


def test_a_sample_of_packed_rows_is_repeated_up_to_the_true_batch() -> None:
    (worst,) = worst_batches(facts([512, 500, 490], [511, 499, 489]), 8)
    assert 8 == len(worst.rows)
    assert 0 in worst.rows


def test_the_first_token_of_every_flattened_document_is_not_trained_on() -> None:
    one_label_each = [-100] * 9 + [1]
    assert 3 == _trained(one_label_each * 3, [10, 10, 10])
    assert 27 == _trained([1] * 30, [10, 10, 10])
    assert 29 == _trained([1] * 30, [30])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("per_device_train_batch_size", 0),
        ("gradient_accumulation_steps", 0),
        ("per_device_train_batch_size", [8]),
        ("max_length", -5),
        ("max_length", 512.0),
    ],
)
def test_numbers_a_search_cannot_use_are_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"{option} is .*expected a whole number above zero"):
        _check_values({option: value})


@pytest.mark.parametrize(
    "options",
    [{"max_steps": 0}, {"max_steps": -3}, {"num_train_epochs": 0}, {"num_train_epochs": -1.0}],
)
def test_a_run_without_a_step_is_bad_input(options: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=r"expected a (whole )?number above zero"):
        _check_values(options)


def test_a_run_that_counts_steps_or_epochs_is_not() -> None:
    _check_values({"max_steps": 10, "num_train_epochs": 0})
    _check_values({"max_steps": -1, "num_train_epochs": 0.5})


@pytest.mark.parametrize("stream", [{"dataset_streaming": True}, {"streaming": True}])
def test_a_stream_has_to_be_told_when_it_ends(stream: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="max_steps is not set"):
        check_has_end(stream)
    check_has_end({**stream, "max_steps": 10})
    check_has_end({"max_steps": -1})


def test_the_longest_pair_and_the_longest_mismatched_sequence_are_worst_batches() -> None:
    rows = facts([100, 90], [50, 60])
    pairs = dataclasses.replace(rows, both_sides=np.asarray([110, 180], dtype=np.int64))
    assert [(0,), (1,)] == [batch.rows for batch in worst_batches(pairs, 1)]
    assert [110, 180] == [batch.useful_tokens for batch in worst_batches(pairs, 1)]
    rated = facts([70, 75, 80], [10, 70, 40])
    mixed = dataclasses.replace(rated, prompts=np.asarray([60, 5, 40], dtype=np.int64))
    assert (1, 0) in [batch.rows for batch in worst_batches(mixed, 2)]


def test_a_warm_up_is_one_update_of_the_largest_shapes() -> None:
    rows = facts([5, 90, 7, 80, 3, 91], [4] * 6)
    timed = [batch_of(rows, pair) for pair in ([0, 2], [4, 3], [1, 0], [5, 4])]
    warmup = warmup_batches(rows, timed, 2, ShapeRule(), every_shape=False)
    assert [(5, 4), (1, 0)] == [batch.rows for batch in warmup]
    laid_end_to_end = warmup_batches(rows, timed, 2, ShapeRule(flattened=True), every_shape=False)
    assert [(1, 0), (5, 4)] == [batch.rows for batch in laid_end_to_end]


def test_a_compiled_step_meets_every_shape_before_it_is_timed() -> None:
    rows = facts([5, 90, 7, 80, 3, 90], [4] * 6)
    timed = [batch_of(rows, pair) for pair in ([0, 2], [4, 3], [1, 0], [5, 4])]
    warmup = warmup_batches(rows, timed, 2, ShapeRule(), every_shape=True)
    widths = [max(int(rows.tokens[row]) for row in batch.rows) for batch in warmup]
    assert [90, 80, 7, 90] == widths, "three shapes, filled up to whole updates"


def test_of_very_many_shapes_an_even_choice_is_timed_as_often() -> None:
    rows = facts(list(range(10, 74)), [4] * 64)
    timed = [batch_of(rows, [row]) for row in range(64)]
    chosen, left_out = of_few_shapes(rows, timed, ShapeRule())
    assert (64, 48) == (len(chosen), left_out)
    widths = sorted({ShapeRule().width(rows, batch) for batch in chosen})
    assert (16, 10, 73) == (len(widths), widths[0], widths[-1])
    assert max(b - a for a, b in pairwise(widths)) <= 5
    assert (timed, 0) == of_few_shapes(rows, timed, ShapeRule(multiple=8)), "nine widths"


def test_any_five_updates_of_a_verification_are_like_any_others() -> None:
    rows = facts([5, 90, 7, 80, 3, 91, 40, 41], [4, 70, 6, 79, 2, 5, 30, 30])
    worst = worst_batches(rows, 2)
    mixed = mixed_batches(rows, worst, 2, 20)
    assert 20 == len(mixed)
    windows = {tuple(sorted(b.rows for b in mixed[at : at + 5])) for at in range(16)}
    assert 1 == len(windows)
    assert {(4, 0)} < {b.rows for b in mixed}, "the shortest rows are among them"
    assert {b.rows for b in worst} < {b.rows for b in mixed}
    totals = [b.useful_tokens for b in mixed[:5]]
    assert min(totals) < sorted(totals)[1] < max(totals), "and rows of a middling length"
