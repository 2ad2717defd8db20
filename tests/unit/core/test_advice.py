"""Which max_length to take, and why, from lengths small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.core.advice import advise
from autotune.core.cut_words import Setting
from autotune.core.job import Trainer
from autotune.core.length_report import Advice
from autotune.core.length_table import (
    MOST_LENGTHS,
    histogram_of,
    length_at,
    marked,
    sensible_lengths,
)
from autotune.core.lengths import Lengths
from tests.unit.core.test_lengths import completions, plain

UNSET = Setting(given=False, value=None, default=1024)
SKEWED = plain(*(int(t) for t in np.random.default_rng(0).lognormal(5.5, 1.0, 900).clip(5, 6000)))


def advice(
    lengths: Lengths,
    setting: Setting = UNSET,
    *,
    trainer: Trainer = Trainer.SFT,
    positions: int | None = None,
) -> Advice:
    wanted = sensible_lengths(lengths, setting, positions, 0.99)
    table = [length_at(lengths, n, trainer) for n in wanted]
    return advise(table, lengths, setting, trainer, positions, 0.99)


def sides(*rows: tuple[int, int]) -> Lengths:
    """Preference rows of (chosen, rejected) tokens, all of them labels."""
    chosen = np.array([c for c, _ in rows], dtype=np.int64)
    rejected = np.array([r for _, r in rows], dtype=np.int64)
    return Lengths(
        tokens=np.maximum(chosen, rejected),
        labels=chosen + rejected,
        label_positions=np.bincount(np.concatenate((chosen, rejected)))[::-1].cumsum()[::-1][1:],
        chosen=chosen,
        rejected=rejected,
    )


def test_what_trls_default_does_is_said_first() -> None:
    found = advice(plain(*[1500] * 10))
    assert (
        "max_length is not set, and TRL's default of 1024 cuts 10 of 10 rows and drops 31.7 % of "
        "all tokens, 31.7 % of the label tokens (the longest row has 1,500)." == found.sentences[0]
    )
    assert 1536 == found.max_length
    assert (
        "Take max_length 1536: it keeps every token, the longest row has 1,500; 1024 would keep "
        "68.3 % of the label tokens." == found.sentences[1]
    )


def test_a_default_that_cuts_nothing_is_said_to_cut_nothing() -> None:
    first = advice(plain(100, 300)).sentences[0]
    assert "TRL's default of 1024 cuts nothing: the longest row has 300 tokens." in first


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (Setting(True, 100, 1024), "Your max_length of 100 cuts 1 of 2 rows"),
        (Setting(True, None, 1024), "max_length is off: no row is cut"),
        (Setting(False, None, None), "max_length is not set and TRL sets none"),
    ],
)
def test_the_users_own_setting_is_what_is_spoken_of(setting: Setting, expected: str) -> None:
    assert advice(plain(50, 300), setting).sentences[0].startswith(expected)


def test_the_shortest_length_that_keeps_enough_is_advised_with_its_numbers() -> None:
    found = advice(SKEWED)
    kept = SKEWED.retention_ratio(found.max_length)
    assert kept >= 0.99
    assert SKEWED.retention_ratio(found.max_length - 128) < 0.99
    assert f"keeps {kept * 100:.1f} % of the tokens" in found.sentences[1]
    assert f"cuts {SKEWED.rows_cut(found.max_length)} of 900 rows" in found.sentences[1]


def test_nothing_longer_than_the_model_takes_is_advised() -> None:
    found = advice(plain(*[3000] * 4, *[100] * 4), positions=2048)
    assert 2048 == found.max_length
    assert "the model takes no longer rows" in found.sentences[1]


def test_rows_a_cut_leaves_nothing_of_are_counted() -> None:
    lengths = completions((1200, 100), (10, 100), (10, 100))
    found = advice(lengths)
    assert (
        "1 of 3 rows have no trained token at max_length 1024 (TRL leaves them out); 1201 would "
        "keep one in every row."
    ) in found.sentences[0]
    at = length_at(lengths, 1024, Trainer.SFT)
    assert (1, 1) == (at.rows_cut, at.rows_dropped)
    assert 220 / (1300 + 220) == at.tokens_kept_ratio
    assert 200 / 300 == at.label_tokens_kept_ratio


def test_much_padding_is_answered_by_packing_and_little_is_not() -> None:
    much = advice(SKEWED).sentences[-1]
    assert "packed by bfd the rows are" in much
    assert "wrapped lets documents attend to one another" in much
    assert advice(plain(*[100] * 20)).sentences[-1].endswith("packing gains little.")


def test_trainers_that_do_not_pack_are_told_of_grouping() -> None:
    lengths = sides(*((n, n // 2 + 1) for n in range(10, 500, 3)))
    assert () == length_at(lengths, 512, Trainer.DPO).packing
    assert (
        "rows grouped by length bring it to" in advice(lengths, trainer=Trainer.DPO).sentences[-1]
    )


def test_reward_leaves_out_whole_rows_that_are_longer() -> None:
    lengths = sides((10, 20), (10, 200))
    at = length_at(lengths, 100, Trainer.REWARD)
    assert (1, 1) == (at.rows_cut, at.rows_dropped)
    assert 30 / 240 == at.tokens_kept_ratio == at.label_tokens_kept_ratio
    cut = length_at(lengths, 100, Trainer.DPO)
    assert (1, 0) == (cut.rows_cut, cut.rows_dropped)
    assert 140 / 240 == cut.tokens_kept_ratio == cut.label_tokens_kept_ratio


def test_both_sides_of_preference_rows_are_padded_to_the_longest() -> None:
    at = length_at(sides((10, 20), (10, 40)), 100, Trainer.DPO)
    assert 1 - (30 + 50) / (2 * 20 + 2 * 40) == at.padding_ratio_by_batch[1]
    assert 1 - 80 / (4 * 40) == at.padding_ratio_by_batch[2]


def test_packing_of_every_strategy_is_listed_with_what_it_keeps() -> None:
    packed = {p.strategy: p for p in length_at(plain(6, 4, 15), 10, Trainer.SFT).packing}
    assert (2, 20 / 25, 1.0) == (
        packed["bfd"].rows,
        packed["bfd"].tokens_kept_ratio,
        packed["bfd"].fill_ratio,
    )
    assert (3, 1.0) == (packed["bfd_split"].rows, packed["bfd_split"].tokens_kept_ratio)
    assert [False, False, True] == [p.mixes for p in packed.values()]


def test_listed_lengths_are_few_and_hold_the_users_and_trls() -> None:
    wanted = sensible_lengths(SKEWED, Setting(True, 777, 1024), 4096, 0.99)
    assert wanted == sorted(set(wanted))
    assert {777, 1024} <= set(wanted)
    assert len(wanted) <= MOST_LENGTHS
    assert max(wanted) <= 4096


def test_a_default_beyond_the_model_is_not_listed() -> None:
    assert [128, 256] == sensible_lengths(plain(*range(10, 300)), UNSET, 256, 1.0)


def test_the_table_says_what_each_length_is() -> None:
    table = [length_at(SKEWED, n, Trainer.SFT) for n in (512, 1024, 2048)]
    marks = [row.marks for row in marked(table, Setting(True, 512, None), 2048, None)]
    assert [("yours",), (), ("advised",)] == marks
    marks = [row.marks for row in marked(table, UNSET, 1024, None)]
    assert [(), ("TRL's default", "advised"), ()] == marks


@pytest.mark.parametrize("lengths", [SKEWED, plain(5), plain(*[1500] * 10), plain(1, 2, 90_000)])
def test_every_row_is_in_the_histogram_once(lengths: Lengths) -> None:
    histogram = histogram_of(lengths)
    assert len(lengths) == sum(histogram.rows)
    assert len(histogram.edges) == len(histogram.rows) + 1 <= 27
    assert list(histogram.edges) == sorted(set(histogram.edges))
