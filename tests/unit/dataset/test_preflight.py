"""What prepared rows tell before any probe: cuts that leave nothing, and TRL's own default cut."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.core.lengths import Lengths
from autotune.core.positions import Positions
from autotune.dataset.preflight import check_left, check_next_token
from autotune.dataset.scan import Column, Seen
from autotune.dataset.unread import unread_label, unread_mask


def pairs(prompts: list[int], answers: int = 10, **more: Any) -> Lengths:
    """Preference rows: both answers this long after a prompt."""
    first = np.asarray(prompts)
    tokens = first + answers
    positions = np.zeros(int(tokens.max()), dtype=np.int64)
    for start in prompts:
        positions[start : start + answers] += 2
    labels = np.full(len(prompts), 2 * answers)
    return Lengths(tokens, labels, positions, first, chosen=tokens, rejected=tokens, **more)


def rewards(prompts: list[int]) -> Lengths:
    found = pairs(prompts, drops_longer=True)
    return dataclasses.replace(found, labels=2 * found.tokens, first_labels=None)


def refusal(lengths: Lengths, positions: Positions | None = None, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        check_left(lengths, options, positions)
    return str(caught.value)


def test_prompts_that_fill_max_length_stop() -> None:
    said = refusal(pairs([100, 200]), max_length=64)
    assert "max_length is 64" in said
    assert "at least 101" in said


def test_rows_that_are_all_left_out_stop() -> None:
    said = refusal(rewards([100, 200]), max_length=64)
    assert "left out" in said
    assert "at least 110" in said


def test_prompts_beyond_the_model_need_another_model() -> None:
    said = refusal(pairs([5000]), Positions(most=1024, field="n_positions"))
    assert "the model has 1024 positions (n_positions)" in said
    assert "at least 5001 positions" in said


def test_a_length_of_the_users_own_goes_beyond_rotary_positions() -> None:
    rotary = Positions(most=1024, fixed=False)
    check_left(pairs([5000]), {"max_length": 5001}, rotary)
    assert "Raise max_length to at least 5001" in refusal(pairs([5000]), rotary)


@pytest.mark.parametrize(
    "options", [{}, {"max_length": 101}, {"max_length": 64, "truncation_mode": "keep_end"}]
)
def test_one_label_is_enough(options: dict[str, Any]) -> None:
    check_left(pairs([100, 200]), options, None)


def test_dropped_tokens_count_both_sides_and_rows_left_out_whole() -> None:
    assert 0.5 == pairs([10, 10]).dropped_ratio(10) * 0.5
    assert 5 / 20 == pairs([10, 10]).dropped_ratio(15)
    assert 110 / 130 == pytest.approx(rewards([10, 100]).dropped_ratio(20))


def test_the_tokens_of_pairs_are_those_of_both_sides() -> None:
    assert 2 * (20 + 110) == pairs([10, 100]).total


def sequences(tokens: list[int]) -> Lengths:
    """Rows of sft, trained on whole."""
    lengths = np.asarray(tokens)
    positions = (lengths[:, None] > np.arange(int(lengths.max()))).sum(axis=0)
    return Lengths(lengths, lengths, positions)


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [
        ([1, 1, 1], {}, "all 3 rows are one token long"),
        ([9, 9], {"max_length": 1}, "max_length is 1"),
    ],
)
def test_rows_without_a_next_token_stop(
    tokens: list[int], options: dict[str, int], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        check_next_token(sequences(tokens), options)


def test_one_row_with_a_next_token_is_enough() -> None:
    check_next_token(sequences([1, 2]), {"max_length": 2})


def rated(kind: str) -> dict[str, Column]:
    return {"label": Column("label", {kind: Seen(4, 0)}, None, None, (), 4)}


def test_ratings_that_sft_does_not_read_are_remarked() -> None:
    (notice,) = unread_label(Trainer.SFT, rated("flag"))
    assert 4 == notice.count
    assert "--trainer kto" in notice.message
    assert () == unread_label(Trainer.SFT, rated("number")), "a class, a length: anything"
    assert () == unread_label(Trainer.KTO, rated("flag"))
    assert () == unread_label(Trainer.SFT, {})


def test_a_prompt_mask_that_trl_drops_is_remarked() -> None:
    # BC32: masks beside ids count only under an option
    def column(name: str) -> Column:
        return Column(name, {"ids": Seen(4, 0)}, None, None, (), 4)

    rows = {name: column(name) for name in ("input_ids", "completion_mask")}
    (notice,) = unread_mask(rows, {})
    assert "completion_only_loss=true" in notice.message
    assert () == unread_mask(rows, {"completion_only_loss": True})
    assert () == unread_mask({**rows, "labels": column("labels")}, {})
    assert () == unread_mask({"input_ids": column("input_ids")}, {})
