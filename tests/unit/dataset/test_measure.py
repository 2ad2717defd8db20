"""Tokenised rows are measured and checked from their Arrow buffers (case BC32)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from autotune.core.errors import BadInput
from autotune.core.positions import Positions
from autotune.dataset import measure as module
from autotune.dataset.measure import measure, measure_sides, real_tokens
from autotune.dataset.preflight import check_prepared, remarks


def rows(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


def refusal(table: Dataset, vocabulary: int | None = 100) -> str:
    with pytest.raises(BadInput) as caught:
        check_prepared(measure(table, vocabulary=vocabulary))
    return str(caught.value)


def test_without_labels_every_token_is_one() -> None:
    lengths = measure(rows(input_ids=[[1, 2, 3], [5]]), vocabulary=100)
    assert [3, 1] == lengths.tokens.tolist() == lengths.labels.tolist()
    assert [2, 1, 1] == lengths.label_positions.tolist()
    assert lengths.first_labels is None


def test_masked_tokens_are_no_labels() -> None:
    lengths = measure(
        rows(input_ids=[[1, 2, 3, 4], [5, 6]], labels=[[-100, 2, -100, 4], [-100, -100]]),
        vocabulary=100,
    )
    assert [2, 0] == lengths.labels.tolist()
    assert [0, 1, 0, 1] == lengths.label_positions.tolist()
    assert lengths.first_labels is not None
    assert [1, 2] == lengths.first_labels.tolist()


def test_measuring_in_batches_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(1, 50, n).tolist() for n in rng.integers(1, 40, 200)]
    labels = [[t if rng.random() < 0.6 else -100 for t in row] for row in ids]
    table = rows(input_ids=ids, labels=labels)
    whole = measure(table, vocabulary=100)
    monkeypatch.setattr(module, "BATCH_ROWS", 7)
    parts = measure(table, vocabulary=100)
    assert whole.labels.tolist() == parts.labels.tolist()
    assert whole.label_positions.tolist() == parts.label_positions.tolist()
    assert [sum(t != -100 for t in row) for row in labels] == whole.labels.tolist()
    for cut in (1, 5, 17, 40):
        kept = sum(t != -100 for row in labels for t in row[:cut])
        assert kept == whole.labels_kept(cut) == parts.labels_kept(cut)


def test_labels_of_another_length_stop_with_row_and_lengths() -> None:
    # BC32 (b)
    message = refusal(rows(input_ids=[[1, 2], [1, 2, 3]], labels=[[1, 2], [1, 2]]))
    assert "row 2 has 3 input_ids but 2 labels" in message


def test_rows_without_any_label_stop_with_row_and_lengths() -> None:
    # BC32 (c)
    message = refusal(rows(input_ids=[[1, 2, 3]] * 2, labels=[[-100] * 3] * 2))
    assert "none of the 2 rows" in message
    assert "row 1 has 3 tokens and 3 labels of -100" in message


def test_some_rows_without_a_label_are_counted() -> None:
    table = rows(input_ids=[[1, 2, 3]] * 2, labels=[[1, 2, 3], [-100] * 3])
    (notice,) = remarks(measure(table, vocabulary=100), None)
    assert ("masked-rows", 1) == (notice.code, notice.count)
    assert "row 2 with 3 tokens" in notice.message


@pytest.mark.parametrize("wrong", [100, -1])
def test_ids_the_embedding_does_not_have_stop_with_the_row(wrong: int) -> None:
    message = refusal(rows(input_ids=[[1], [2, wrong], [3]]))
    assert f"row 2 has the token id {wrong}" in message
    assert "100 rows (ids 0 to 99)" in message


@pytest.mark.parametrize("wrong", [100, -1])
def test_labels_that_are_no_ids_stop_with_the_row(wrong: int) -> None:
    table = rows(input_ids=[[1, 2], [1, 2]], labels=[[1, -100], [1, wrong]])
    assert f"row 2 has the label {wrong}, expected -100 or a token id" in refusal(table)


def test_a_mask_that_is_null_or_short_stands_for_no_padding() -> None:
    table = rows(input_ids=[[5, 6], [5, 6]], attention_mask=[None, [1]])
    assert real_tokens(table, pad_id=0, pad_is_eos=False) is None


def test_ids_of_preference_rows_are_checked_too() -> None:
    table = rows(prompt_ids=[[1]], chosen_ids=[[2]], rejected_ids=[[100]])
    sides = (("prompt_ids", "chosen_ids"), ("prompt_ids", "rejected_ids"))
    with pytest.raises(BadInput, match="token id 100"):
        measure_sides(table, *sides, vocabulary=100)


def test_rows_without_tokens_stop() -> None:
    assert "1 of 2 rows have no tokens, first row 1" in refusal(rows(input_ids=[[], [1]]))


def test_null_among_ids_stops_with_the_row() -> None:
    assert "row 2 has null" in refusal(rows(input_ids=[[1], [2, None]]))


def test_pre_padded_rows_are_counted_and_their_pads_are_not_useful() -> None:
    # BC32 (d): 3 real tokens and 29 pads
    ids = [[5, 6, 7] + [0] * 29] * 2
    table = rows(input_ids=ids, attention_mask=[[1] * 3 + [0] * 29] * 2)
    real = real_tokens(table, pad_id=0, pad_is_eos=False)
    assert real is not None
    assert [3, 3] == real.tolist()
    lengths = measure(table, vocabulary=100)
    padded = type(lengths)(
        tokens=lengths.tokens,
        labels=lengths.labels,
        label_positions=lengths.label_positions,
        real=real,
    )
    (notice,) = remarks(padded, None)
    assert ("pre-padded", 2) == (notice.code, notice.count)
    assert "58 pad tokens are computed and counted and trained on" in notice.message
    assert 6 == padded.useful(None).sum()


def test_padding_is_seen_without_a_mask_too() -> None:
    table = rows(input_ids=[[5, 6, 0, 0], [5, 0, 6, 7], [0, 0]])
    real = real_tokens(table, pad_id=0, pad_is_eos=False)
    assert real is not None
    assert [2, 4, 0] == real.tolist()


def test_one_end_token_is_no_padding() -> None:
    assert real_tokens(rows(input_ids=[[5, 6, 1]]), pad_id=1, pad_is_eos=True) is None
    real = real_tokens(rows(input_ids=[[5, 6, 1, 1, 1]]), pad_id=1, pad_is_eos=True)
    assert real is not None
    assert [3] == real.tolist()


def test_rows_beyond_the_positions_are_counted() -> None:
    lengths = measure(rows(input_ids=[[1] * 3, [1] * 9, [1] * 8]), vocabulary=100)
    (notice,) = remarks(lengths, Positions(most=8))
    assert ("beyond-positions", 1) == (notice.code, notice.count)
    assert "row 2 with 9 tokens" in notice.message


def test_preference_rows_have_two_sides() -> None:
    table = rows(prompt_ids=[[1, 2], [1]], chosen_ids=[[3], [4, 5]], rejected_ids=[[6, 7, 8], [9]])
    sides = (("prompt_ids", "chosen_ids"), ("prompt_ids", "rejected_ids"))
    lengths = measure_sides(table, *sides, vocabulary=100)
    assert lengths.chosen is not None
    assert lengths.rejected is not None
    assert [3, 3] == lengths.chosen.tolist()
    assert [5, 2] == lengths.rejected.tolist()
    assert [5, 3] == lengths.tokens.tolist()
    assert [4, 3] == lengths.labels.tolist()
    assert 7 == lengths.labels_kept(None)
    assert 2 == lengths.labels_kept(2)
