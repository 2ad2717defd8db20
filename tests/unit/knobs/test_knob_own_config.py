"""The user's own config under every rule: refused with a remedy, or remarked with numbers."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.job import Trainer
from autotune.core.positions import Positions
from autotune.knobs.catalog import user_candidate
from autotune.knobs.consequences import CONSEQUENCES, Effect
from autotune.knobs.own_config import own_remarks, require_own
from autotune.knobs.rules import RULES
from autotune.knobs.translate import canonical, settings
from tests.support.facts import GPU, facts_of

LEARNED = Positions(most=64, field="n_positions")
ROTARY = Positions(most=64, fixed=False)
STREAM = {"dataset_streaming": True, "max_steps": 5}


def test_every_rule_says_what_it_means_for_the_users_own_config() -> None:
    assert {rule.__name__ for rule in RULES} == set(CONSEQUENCES)
    for rule, means in CONSEQUENCES.items():
        refuses = means.effect in (Effect.REFUSED, Effect.UNABLE)
        assert refuses == bool(means.remedy), rule
        assert not means.remedy or means.remedy.endswith("."), rule


#: what a config asks for: (facts, words of the refusal)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rows cut beyond a table of positions": (
        {"tokens": [600] * 9, "positions": LEARNED, "options": {"max_length": 1024}},
        r"lets rows be 600 tokens long, beyond the model's 64 positions \(n_positions\)",
    ),
    "whole rows beyond a table of positions": (
        {"tokens": [600] * 9, "positions": LEARNED, "options": {"max_length": None}},
        "beyond the model's 64 positions",
    ),
    "a pad multiple beyond a table of positions": (
        {
            "tokens": [60] * 9,
            "positions": Positions(most=60),
            "options": {"max_length": 60, "pad_to_multiple_of": 64},
        },
        r"widens 60 tokens to 64, beyond the model's 60 positions \(max_position_embeddings\)",
    ),
    "packing beyond a table of positions": (
        {
            "tokens": [20] * 40,
            "positions": LEARNED,
            "options": {"packing": True, "max_length": 128, "per_device_train_batch_size": 1},
        },
        "lets rows be 128 tokens long",
    ),
    "a batch that is dropped": (
        {"tokens": [20], "options": {"dataloader_drop_last": True}},
        "a batch of 8 is more than the 1 rows there are, and dataloader_drop_last leaves it out",
    ),
    "a packed batch that is dropped": (
        {
            "tokens": [20] * 10,
            "options": {"dataloader_drop_last": True, "packing": True, "max_length": 100},
        },
        "more than the 2 packed rows",
    ),
    "packing without a length": (
        {"options": {"packing": True, "max_length": None}},
        "packing needs a max_length",
    ),
    "weights in float16 without a scaler": (
        {"options": {"dtype": "float16", "bf16": True}},
        "gradient scaler",
    ),
    "a score in float16 without a scaler": (
        {
            "trainer": Trainer.REWARD,
            "options": {"dtype": "float16", "bf16": True, "use_peft": True},
        },
        "gradient scaler",
    ),
    "4-bit weights alone": ({"options": {"load_in_4bit": True}}, "nothing to train"),
    "a stream that never fills an update": (
        {"tokens": [20] * 3, "options": {**STREAM, "gradient_accumulation_steps": 4}},
        "never fill an update",
    ),
    "a stream that would have to be cut": (
        {"options": {**STREAM, "padding_free": True, "max_length": 512}},
        "a stream cannot be written cut",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_training_could_not_do_is_refused_with_the_remedy(case: str) -> None:
    made, words = REFUSED[case]
    with pytest.raises(BadInput, match=words) as caught:
        require_own(facts_of(**made))
    assert caught.value.message.startswith("your config cannot be trained: ")
    assert caught.value.hint


def test_what_this_machine_cannot_do_is_its_environment() -> None:
    with pytest.raises(EnvironmentUnable, match="accelerator") as caught:
        require_own(facts_of(options={"activation_offloading": True}))
    assert "--gpu" in str(caught.value.hint)
    require_own(facts_of(options={"activation_offloading": True}, device=GPU))


#: what a config asks for: (facts, words of the remark)
REMARKED: dict[str, tuple[dict[str, Any], str]] = {
    "rows beyond rotary positions": (
        {"tokens": [600] * 9, "positions": ROTARY, "options": {"max_length": 512}},
        "512 tokens long, beyond the model's 64 positions (max_position_embeddings); it computes",
    ),
    "whole rows beyond rotary positions": (
        {"tokens": [600] * 9, "positions": ROTARY, "options": {"max_length": None}},
        "600 tokens long, beyond",
    ),
    "more rows in a batch than there are": (
        {"tokens": [20]},
        "per_device_train_batch_size 8 is more than the 1 rows there are",
    ),
    "more rows in a step than there are": (
        {"tokens": [20] * 3, "options": {"gradient_accumulation_steps": 64}},
        "sees 3 rows, not the 512 of per_device_train_batch_size 8 x gradient_accumulation_steps",
    ),
    "a packed row that nothing fills": (
        {"tokens": [5, 6], "options": {"packing": True, "max_length": 512}},
        "all rows together have 11 tokens: nothing fills a packed row of 512",
    ),
    "rows that are dropped": (
        {"tokens": [20] * 10, "options": {"dataloader_drop_last": True}},
        "dataloader_drop_last leaves out 2 of the 10 rows in every epoch",
    ),
    "an update that cannot be held": (
        {"options": {"per_device_train_batch_size": 10}, "effective_batch_sequences": 8},
        "10.0 sequences instead of 8.0",
    ),
}


@pytest.mark.parametrize("case", REMARKED)
def test_what_trains_and_is_unwise_is_remarked_with_numbers(case: str) -> None:
    made, words = REMARKED[case]
    facts = facts_of(**made)
    require_own(facts)
    (remark,) = [line for line in own_remarks(facts) if words in line]
    assert remark.startswith("Your config: ") and remark.endswith(".")


def test_a_config_without_anything_to_say_has_no_remark() -> None:
    assert () == own_remarks(facts_of())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("bits", [{}, {"load_in_4bit": True}])
def test_frozen_half_weights_under_adapters_and_bf16_need_no_scaler(
    bits: dict[str, bool], dtype: str
) -> None:
    options = {"dtype": dtype, "bf16": True, "use_peft": True, **bits}
    require_own(facts_of(trainer=Trainer.DPO, options=options))
    copies = {"lora_modules_to_save": ["lm_head"]}
    if not bits and dtype == "float16":
        with pytest.raises(BadInput, match="gradient scaler"):
            require_own(facts_of(trainer=Trainer.DPO, options={**options, **copies}))


@pytest.mark.parametrize(
    ("made", "batch", "accumulation", "seen"),
    [
        ({"tokens": [20]}, 1, 1, 1.0),
        ({"tokens": [20] * 3, "options": {"gradient_accumulation_steps": 64}}, 3, 1, 3.0),
        (
            {
                "tokens": [20] * 10,
                "options": {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
            },
            *(4, 3, 10.0),
        ),
        ({"tokens": [5, 6], "options": {"packing": True, "max_length": 512}}, 1, 1, 2.0),
        ({"tokens": [20] * 3, "options": {**STREAM}}, 3, 1, 3.0),
        ({"tokens": [20] * 3, "effective_batch_sequences": 64}, 3, 1, 3.0),
    ],
)
def test_what_is_written_is_the_batch_as_it_is_realised(
    made: dict[str, Any], batch: int, accumulation: int, seen: float
) -> None:
    facts = facts_of(**made)
    own = canonical(user_candidate(facts), facts)
    translated = settings(own, facts)
    assert batch == own.get("per_device_train_batch_size")
    assert (accumulation, seen) == (translated.accumulation, translated.sequences_per_update)
    assert batch == translated.options.get("per_device_train_batch_size", 8)


def test_a_length_of_the_users_own_goes_before_rotary_positions() -> None:
    rows = {"tokens": [600] * 9}
    assert 64 == facts_of(**rows, positions=ROTARY).reference_length
    theirs = {"options": {"max_length": 512}}
    assert 512 == facts_of(**rows, **theirs, positions=ROTARY).reference_length
    assert 64 == facts_of(**rows, **theirs, positions=LEARNED).reference_length
