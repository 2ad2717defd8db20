"""Which rows are worst, paired or packed: by length and seed alone (case BC01)."""

from __future__ import annotations

import numpy as np

from autotune.core.lengths import Lengths
from autotune.core.rows import packing_block, paired_rows, worst_rows
from tests.unit.core.test_lengths import completions, plain


def test_the_worst_batch_has_the_longest_row_even_when_it_comes_last() -> None:
    # BC01: thirty short rows, then one of 1,200 tokens as the last
    lengths = plain(*[3] * 30, 1200)
    for max_length in (256, 1024, None):
        worst = worst_rows(lengths, batch=2, max_length=max_length)
        assert [[30, 0]] == worst
        width = int(lengths.cut(max_length)[worst[0]].max())
        assert min(1200, max_length or 1200) == width


def test_shuffled_rows_have_the_same_worst_rows() -> None:
    tokens = np.random.default_rng(1).permutation(np.arange(1, 500))
    order = np.random.default_rng(2).permutation(len(tokens))
    worst = worst_rows(plain(*tokens.tolist()), batch=4, max_length=None)[0]
    again = worst_rows(plain(*tokens[order].tolist()), batch=4, max_length=None)[0]
    assert tokens[worst].tolist() == tokens[order][again].tolist() == [499, 498, 497, 496]


def test_most_label_tokens_are_a_row_set_of_their_own() -> None:
    lengths = completions((90, 10), (1, 80), (5, 5))
    assert [[0], [1]] == worst_rows(lengths, batch=1, max_length=None)


def test_equal_row_sets_come_once() -> None:
    assert [[1]] == worst_rows(completions((1, 2), (2, 8)), batch=1, max_length=None)


def test_rows_the_cut_drops_are_never_the_worst() -> None:
    lengths = completions((90, 10), (1, 80))
    assert [[1]] == worst_rows(lengths, batch=1, max_length=50)


def test_among_rows_cut_to_the_same_length_those_with_most_labels_count() -> None:
    lengths = completions((60, 40), (5, 95), (40, 60))
    assert [[1, 2]] == worst_rows(lengths, batch=2, max_length=50)[:1]


def test_preference_rows_add_the_longest_pair() -> None:
    lengths = Lengths(
        tokens=np.array([100, 90]),
        labels=np.array([50, 60]),
        label_positions=np.zeros(100, dtype=np.int64),
        chosen=np.array([100, 90]),
        rejected=np.array([10, 90]),
    )
    assert [0] in worst_rows(lengths, batch=1, max_length=None)
    assert [1] in worst_rows(lengths, batch=1, max_length=None)


def test_paired_rows_stand_for_the_whole_distribution() -> None:
    tokens = np.random.default_rng(0).lognormal(5, 1, 5000).astype(np.int64) + 1
    sample = paired_rows(plain(*tokens.tolist()), n=64, seed=3)
    assert 64 == len(set(sample))
    assert abs(np.median(tokens[sample]) / np.median(tokens) - 1) < 0.1
    ranks = np.argsort(np.argsort(tokens, kind="stable"), kind="stable")[sample] * 64 // 5000
    assert 60 <= len(set(ranks.tolist()))


def test_paired_rows_depend_on_the_seed_alone() -> None:
    lengths = plain(*range(1, 1000))
    assert paired_rows(lengths, seed=5) == paired_rows(lengths, seed=5)
    assert paired_rows(lengths, seed=5) != paired_rows(lengths, seed=6)


def test_few_rows_are_paired_over_and_over() -> None:
    sample = paired_rows(plain(1, 2, 3), n=7)
    assert 7 == len(sample)
    assert {0, 1, 2} == set(sample[:3]) == set(sample[3:6])


def test_a_packing_block_is_full_in_order_and_has_the_longest_rows() -> None:
    tokens = np.random.default_rng(0).lognormal(5, 1, 5000).astype(np.int64) + 1
    block = packing_block(plain(*tokens.tolist()), seed=1)
    assert 1000 == len(block) == len(set(block))
    assert block == sorted(block)
    assert set(np.argsort(tokens)[-10:].tolist()) <= set(block)


def test_a_small_data_set_is_its_own_packing_block() -> None:
    assert [0, 1, 2] == packing_block(plain(1, 2, 3))


def test_mismatched_rows_put_the_longest_prompt_after_the_longest_completion() -> None:
    # KTO also runs every prompt with the completion of the row before it
    lengths = completions((60, 10), (5, 70), (40, 40))
    assert [1, 0] in worst_rows(lengths, batch=2, max_length=None, mismatched=True)
    assert [1, 0] not in worst_rows(lengths, batch=2, max_length=None)
