"""Micro-batches of a pass, by hand; the contract with TRL's collator is in tests/integration."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from autotune.core.errors import BadInput
from autotune.core.shapes import padding_waste, shapes_of_pass
from tests.unit.core.test_lengths import completions, plain


def shapes(lengths: Any, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "batch": 2,
        "max_length": None,
        "packing": "none",
        "padding_free": False,
        "pad_to_multiple_of": None,
        "seed": 0,
        **changes,
    }
    return shapes_of_pass(lengths, **settings)


def test_every_row_comes_once_and_the_last_batch_may_be_short() -> None:
    found = shapes(plain(1, 2, 3, 4, 5))
    assert [2, 2, 1] == found.rows.tolist()
    assert 15 == found.useful_tokens.sum()


def test_rows_that_are_held_out_are_not_passed_over() -> None:
    rows = dataclasses.replace(plain(*[4] * 10), held_out=3)
    assert (10, 7, 28, 28) == (
        len(rows), len(rows.trained), rows.trained.labels_kept(None), rows.trained.total
    )  # fmt: skip
    assert [2, 2, 2, 1] == shapes(rows).rows.tolist()
    packed = shapes(rows, packing="wrapped", max_length=8, batch=1)
    assert 28 == packed.useful_tokens.sum()


def test_padded_batches_are_as_wide_as_their_longest_row() -> None:
    found = shapes(plain(3, 7), batch=2)
    assert ([7], [14], [10]) == (
        found.width.tolist(),
        found.padded_tokens.tolist(),
        found.useful_tokens.tolist(),
    )
    assert [2] == found.tensor_rows.tolist()


def test_width_is_rounded_up_to_the_multiple() -> None:
    assert [8] == shapes(plain(3, 7), pad_to_multiple_of=8).width.tolist()
    assert [16] == shapes(plain(3, 9), pad_to_multiple_of=8).width.tolist()


def test_the_multiple_may_push_past_max_length() -> None:
    assert [16] == shapes(plain(30, 30), max_length=10, pad_to_multiple_of=16).width.tolist()


def test_padding_free_lays_the_batch_end_to_end_and_pads_the_whole() -> None:
    found = shapes(plain(3, 7), padding_free=True, pad_to_multiple_of=4)
    assert ([12], [12], [10]) == (
        found.width.tolist(),
        found.padded_tokens.tolist(),
        found.useful_tokens.tolist(),
    )
    assert [1] == found.tensor_rows.tolist()


def test_bfd_rows_are_laid_end_to_end_and_count_their_documents() -> None:
    found = shapes(plain(3, 1, 4), max_length=4, packing="bfd")
    assert ([3], [8], [8]) == (
        found.rows.tolist(),
        found.width.tolist(),
        found.useful_tokens.tolist(),
    )


def test_wrapped_rows_are_padded_like_any_row() -> None:
    found = shapes(plain(5, 2, 3, 1), max_length=4, packing="wrapped", batch=8)
    assert ([4], [12], [11]) == (
        found.width.tolist(),
        found.padded_tokens.tolist(),
        found.useful_tokens.tolist(),
    )


def test_rows_that_lose_their_labels_to_the_cut_are_not_in_the_pass() -> None:
    assert [1] == shapes(completions((8, 2), (2, 8)), max_length=8).rows.tolist()


def test_the_order_depends_on_the_seed_alone() -> None:
    rows = plain(*range(1, 101))
    assert shapes(rows).width.tolist() == shapes(rows).width.tolist()
    assert shapes(rows).width.tolist() != shapes(rows, seed=1).width.tolist()


def test_grouping_by_length_puts_the_longest_first_and_wastes_less() -> None:
    rows = plain(*np.random.default_rng(0).integers(1, 1000, 500).tolist())
    grouped = shapes(rows, batch=8, group_by_length=True)
    assert rows.longest == grouped.width[0]
    assert grouped.padding_ratio < shapes(rows, batch=8).padding_ratio / 3
    assert rows.tokens.sum() == grouped.useful_tokens.sum()


def test_batches_of_one_waste_nothing_and_larger_ones_more() -> None:
    rows = plain(*np.random.default_rng(0).integers(1, 1000, 500).tolist())
    waste = padding_waste(rows, max_length=None)
    assert [1, 2, 4, 8, 16, 32, 64] == list(waste)
    assert 0.0 == waste[1]
    assert list(waste.values()) == sorted(waste.values())


def test_padding_that_rows_brought_along_is_not_useful() -> None:
    lengths = plain(32, 32)
    padded = type(lengths)(
        tokens=lengths.tokens,
        labels=lengths.labels,
        label_positions=lengths.label_positions,
        real=np.array([3, 3]),
    )
    assert [6] == shapes(padded).useful_tokens.tolist()
    assert [64] == shapes(padded).padded_tokens.tolist()


def test_packing_without_max_length_is_refused() -> None:
    with pytest.raises(BadInput, match="max_length"):
        shapes(plain(1), packing="bfd")


def test_an_unknown_packing_is_refused() -> None:
    with pytest.raises(BadInput, match="expected none, bfd"):
        shapes(plain(1), packing="best", max_length=4)
