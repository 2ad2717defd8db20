"""What a cut keeps, counted from arrays small enough to check by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.core.errors import ToolFailure
from autotune.core.lengths import MOST_CHOICES, Lengths


def plain(*tokens: int) -> Lengths:
    """Rows of which every token is trained on."""
    array = np.array(tokens, dtype=np.int64)
    positions = np.array([(array > p).sum() for p in range(max(tokens, default=0))], dtype=np.int64)
    return Lengths(tokens=array, labels=array, label_positions=positions)


def completions(*rows: tuple[int, int]) -> Lengths:
    """Rows of (prompt, completion) tokens, trained on the completion."""
    prompts = np.array([p for p, _ in rows], dtype=np.int64)
    labels = np.array([c for _, c in rows], dtype=np.int64)
    tokens = prompts + labels
    positions = np.array(
        [((prompts <= p) & (p < tokens)).sum() for p in range(int(tokens.max()))], dtype=np.int64
    )
    return Lengths(tokens=tokens, labels=labels, label_positions=positions, first_labels=prompts)


def test_a_cut_keeps_no_more_than_max_length_of_any_row() -> None:
    lengths = plain(3, 10, 5)
    assert 18 == lengths.labels_kept(None)
    assert 3 + 5 + 5 == lengths.labels_kept(5)
    assert 3 + 5 + 5 == lengths.tokens_kept(5)
    assert 1 == lengths.rows_cut(5)
    assert 0 == lengths.labels_kept(0)
    assert 18 == lengths.labels_kept(99)


def test_label_tokens_kept_are_counted_by_position_not_by_row_share() -> None:
    lengths = completions((8, 2), (2, 8))
    assert 1 + 7 == lengths.labels_kept(9)
    assert 0.8 == lengths.retention_ratio(9)


def test_rows_whose_labels_are_all_cut_away_are_dropped_and_counted() -> None:
    lengths = completions((8, 2), (2, 8))
    assert [False, True] == lengths.kept_rows(8).tolist()
    assert 1 == lengths.rows_dropped(8)
    assert 8 == lengths.tokens_kept(8)
    assert 0 == lengths.rows_dropped(None)


def test_a_row_without_any_label_is_dropped_only_when_rows_are_cut() -> None:
    lengths = completions((4, 0), (2, 2))
    assert 1 == lengths.rows_dropped(100)
    assert 0 == lengths.rows_dropped(None)


def test_quantiles_are_lengths_of_real_rows() -> None:
    lengths = plain(*range(1, 101))
    assert {"0.5": 50, "0.9": 90, "0.95": 95, "0.99": 99, "1.0": 100} == lengths.quantiles()
    assert 99 == lengths.longest_row


def test_useful_tokens_leave_out_padding_that_rows_brought_along() -> None:
    lengths = Lengths(
        tokens=np.array([32, 32]),
        labels=np.array([32, 32]),
        label_positions=np.full(32, 2),
        real=np.array([3, 30]),
    )
    assert [3, 30] == lengths.useful(None).tolist()
    assert [3, 16] == lengths.useful(16).tolist()


def test_lengths_survive_their_file(tmp_path: Path) -> None:
    lengths = completions((8, 2), (2, 8))
    path = tmp_path / "lengths.npz"
    np.savez(
        path,
        tokens=lengths.tokens.astype(np.int32),
        labels=lengths.labels.astype(np.int32),
        label_positions=lengths.label_positions,
        first_labels=np.array([8, 2], dtype=np.int32),
    )
    read = Lengths.read(path)
    assert lengths.tokens.tolist() == read.tokens.tolist()
    assert lengths.labels_kept(9) == read.labels_kept(9)
    assert np.int64 == read.tokens.dtype


@pytest.mark.parametrize("content", [None, b"", b"not an archive"])
def test_a_missing_or_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "lengths.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ToolFailure, match=r"lengths\.npz"):
        Lengths.read(path)


def test_choices_keep_at_least_the_retention_asked_for() -> None:
    rng = np.random.default_rng(0)
    lengths = plain(*(int(t) for t in rng.lognormal(5.5, 1.0, 2000).clip(5, 4000)))
    choices = lengths.max_length_choices(None, 0.99, None)
    assert choices == sorted(set(choices))
    assert 2 <= len(choices) <= MOST_CHOICES
    assert all(lengths.retention_ratio(c) >= 0.99 for c in choices)
    assert lengths.retention_ratio(int(choices[0] * 0.9)) < 0.99
    assert lengths.retention_ratio(choices[-1]) == 1.0
    assert all(c % 64 == 0 for c in choices)


def test_choices_never_exceed_the_models_positions() -> None:
    assert [2000] == plain(*[5000] * 10).max_length_choices(2000, 0.99, None)
    assert max(plain(*range(10, 3000)).max_length_choices(2000, 0.9, None)) == 2000


def test_choices_never_exceed_the_users_own_max_length_and_contain_it() -> None:
    lengths = plain(*range(10, 3000))
    choices = lengths.max_length_choices(4096, 0.8, 1000)
    assert 1000 == choices[-1]
    reference = lengths.labels_kept(1000)
    assert all(lengths.labels_kept(c) >= 0.8 * reference for c in choices)


def test_short_rows_get_choices_in_steps_of_eight() -> None:
    assert [8, 16] == plain(*[3] * 5, 12).max_length_choices(None, 0.8, None)


def test_rows_that_may_lose_nothing_leave_one_choice() -> None:
    assert [1536] == plain(*[1500] * 10).max_length_choices(2048, 1.0, None)


def rewards(*sides: tuple[int, int]) -> Lengths:
    """Return rows of which the longer ones are left out; every token of both sides counts."""
    both = np.asarray(sides, dtype=np.int64)
    return Lengths(
        tokens=both.max(axis=1),
        labels=both.sum(axis=1),
        label_positions=np.zeros(int(both.max()), dtype=np.int64),
        chosen=both[:, 0],
        rejected=both[:, 1],
        drops_longer=True,
    )


def test_reward_keeps_rows_whole_or_not_at_all() -> None:
    lengths = rewards((10, 20), (10, 200))
    assert [True, False] == lengths.kept_rows(100).tolist()
    assert (30, 240, 0) == tuple(lengths.labels_kept(n) for n in (100, 200, 19))
    assert 240 == lengths.labels_kept(1000)
    assert [30, 0] == lengths.labels_within(100).tolist()
    assert 30 / 240 == lengths.retention_ratio(100)


def test_lengths_read_back_say_whether_longer_rows_are_dropped(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", tokens=[1], labels=[1], label_positions=[1])
    assert not Lengths.read(tmp_path / "old.npz").drops_longer
    arrays = {"tokens": [1], "labels": [1], "label_positions": [1], "drops_longer": True}
    np.savez(tmp_path / "new.npz", **arrays)
    assert Lengths.read(tmp_path / "new.npz").drops_longer


def test_labels_of_both_sides_of_a_pair_are_counted_within_a_cut() -> None:
    pair = Lengths(
        tokens=np.array([60]),
        labels=np.array([60]),
        label_positions=np.zeros(60, dtype=np.int64),
        first_labels=np.array([20]),
        chosen=np.array([60]),
        rejected=np.array([40]),
    )
    assert [60] == pair.labels_within(None).tolist()
    assert [30 + 20] == pair.labels_within(50).tolist()
    assert [50 + 40] == pair.both_sides(50).tolist()
