"""What the user's own length takes from their rows, said in full."""

from __future__ import annotations

import dataclasses

import pytest

from autotune.core.cut_words import Setting, cut_words
from autotune.core.job import Trainer
from tests.unit.core.test_lengths import completions, plain

#: https://github.com/huggingface/trl/issues/6668: three prompts fill max_length alone
MASKED = completions((150, 1), (150, 1), (150, 1), (8, 1))


def own(length: int, packing: str = "none") -> Setting:
    return Setting(given=True, value=length, default=None, packing=packing)


@pytest.mark.parametrize(
    ("packing", "what"),
    [
        ("none", "TRL leaves them out"),
        ("bfd", "they are packed all the same and trained at a loss of 0"),
        ("bfd_split", "what is trained of them comes in a later piece, without their prompt"),
        ("wrapped", "what is trained of them comes in a later row, without their prompt"),
    ],
)
def test_rows_without_a_trained_token_are_said_with_the_length_that_keeps_one(
    packing: str, what: str
) -> None:
    said = cut_words(MASKED, own(16, packing), Trainer.SFT)
    where = "at max_length 16" if packing in ("none", "bfd") else "in their first 16 tokens"
    assert said.endswith(
        f" 3 of 4 rows have no trained token {where} ({what}); 151 would keep one in every row."
    )


def test_what_is_cut_and_what_is_split_are_told_apart() -> None:
    lengths = plain(100, 300)
    assert (
        "Your max_length of 200 cuts 1 of 2 rows and drops 25.0 % of all tokens, 25.0 % of the "
        "label tokens (the longest row has 300)." == cut_words(lengths, own(200), Trainer.SFT)
    )
    assert (
        "Your max_length of 200 splits 1 of 2 rows (packing bfd_split), and 75.0 % of the label "
        "tokens keep all that comes before them (the longest row has 300)."
        == cut_words(lengths, own(200, "bfd_split"), Trainer.SFT)
    )
    assert "" == cut_words(lengths, own(300, "bfd"), Trainer.SFT)
    assert "splits 1 of 2 rows" in cut_words(lengths, own(300, "wrapped"), Trainer.SFT)


def test_reward_leaves_out_what_is_longer() -> None:
    lengths = dataclasses.replace(plain(100, 300), drops_longer=True)
    assert (
        "Your max_length of 200 leaves out 1 of 2 rows, which are longer, and 75.0 % of all "
        "tokens; 300 would keep every row." == cut_words(lengths, own(200), Trainer.REWARD)
    )


def test_a_length_the_model_does_not_reach_is_no_remedy_unsaid() -> None:
    said = cut_words(MASKED, own(16), Trainer.DPO, 64)
    assert "151 (more than the model's 64 positions) would keep one" in said
