"""Packing on lengths, by hand; the contract with TRL is in tests/integration."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.core.errors import BadInput
from autotune.core.packing import pack


def packed(tokens: list[int], max_length: int, strategy: str) -> tuple[list[int], list[int]]:
    rows = pack(np.array(tokens), max_length, strategy)
    return rows.totals.tolist(), rows.sequences.tolist()


def test_bfd_cuts_long_rows_and_fills_the_tightest_gap() -> None:
    # the example in trl.pack_dataset's own documentation
    assert ([4, 4, 2], [1, 2, 1]) == packed([5, 2, 3, 1], 4, "bfd")


def test_bfd_split_loses_nothing() -> None:
    assert ([4, 4, 3], [1, 2, 2]) == packed([5, 2, 3, 1], 4, "bfd_split")


def test_wrapped_joins_rows_and_counts_the_documents_that_begin() -> None:
    assert ([4, 4, 3], [1, 2, 1]) == packed([5, 2, 3, 1], 4, "wrapped")


def test_empty_rows_vanish() -> None:
    assert ([3], [1]) == packed([0, 3, 0], 4, "bfd")


def test_no_rows_pack_into_no_rows() -> None:
    for strategy in ("bfd", "bfd_split", "wrapped"):
        assert ([], []) == packed([], 4, strategy)
        assert 0.0 == pack(np.zeros(0, dtype=np.int64), 4, strategy).fill_ratio


def test_blocks_of_a_thousand_rows_are_packed_apart() -> None:
    assert [4] * 250 + [2] == packed([1] * 1002, 4, "wrapped")[0]


def test_shards_are_packed_apart() -> None:
    assert [3, 2] == pack(np.ones(5, dtype=np.int64), 4, "bfd", shards=2).totals.tolist()


def test_fill_is_the_share_of_capacity_that_holds_tokens() -> None:
    assert 0.75 == pack(np.array([3, 3]), 4, "bfd").fill_ratio


def test_an_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'bfd_split'"):
        pack(np.array([1]), 4, "bfd_splt")


def test_a_length_below_one_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        pack(np.array([1]), 0, "bfd")
