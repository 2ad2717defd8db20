"""Options that are accepted and do nothing are listed with the reason, the user's own included."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.knobs.no_effect import DEPENDENTS, idle_options, idle_words
from tests.support.facts import facts_of

#: case (all BC41): (facts, options of the user's, the option that is listed, part of the reason)
IDLE: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "padding-free in DPO": (
        {"trainer": Trainer.DPO},
        {"padding_free": True},
        "padding_free true",
        "dpo switches it off",
    ),
    "padding-free at batch 1": (
        {},
        {"padding_free": True, "per_device_train_batch_size": 1, "max_length": None},
        "padding_free true",
        "no padding",
    ),
    "padding-free beside packing": (
        {},
        {"padding_free": True, "packing": True, "max_length": 256},
        "padding_free true",
        "packing bfd flattens",
    ),
    "a pad multiple beside padding-free": (
        {},
        {"padding_free": True, "max_length": None, "pad_to_multiple_of": 8},
        "pad_to_multiple_of 8",
        "documents of one token",
    ),
    "a pad multiple all rows have": (
        {"tokens": [64, 128] * 9},
        {"pad_to_multiple_of": 64},
        "pad_to_multiple_of 64",
        "as wide without it",
    ),
    "selective checkpointing under eager": (
        {},
        {
            "attn_implementation": "eager",
            "gradient_checkpointing_kwargs": {"selective": True},
        },
        "gradient_checkpointing selective",
        "eager attention",
    ),
    "adapters' options without adapters": ({}, {"lora_r": 64}, "lora_r 64", "use_peft"),
    "options of quantisation without it": (
        {},
        {"bnb_4bit_quant_type": "nf4"},
        "bnb_4bit_quant_type nf4",
        "load_in_4bit",
    ),
    "a packing strategy without packing": (
        {},
        {"packing_strategy": "wrapped"},
        "packing_strategy wrapped",
        "without packing",
    ),
    "a variant of checkpointing without it": (
        {},
        {"gradient_checkpointing": False, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
        "gradient_checkpointing_kwargs {'use_reentrant': True}",
        "without gradient_checkpointing",
    ),
    "the older name of dtype, which the newer beside it beats": (
        {},
        {"model_init_kwargs": {"torch_dtype": "float16"}},
        "model_init_kwargs.torch_dtype float16",
        "dtype float32",
    ),
    "a batch of evaluation without one": (
        {},
        {"eval_strategy": "no", "per_device_eval_batch_size": 2},
        "per_device_eval_batch_size 2",
        "eval_strategy",
    ),
}


@pytest.mark.parametrize("case", IDLE)
def test_an_option_of_the_users_that_does_nothing_is_named_with_the_reason(case: str) -> None:
    made, options, name, why = IDLE[case]
    found = idle_options(facts_of(**made, options=options))
    assert name in found
    assert why in found[name]


def test_options_that_do_something_are_not_listed() -> None:
    options = {
        "use_peft": True,
        "lora_r": 8,
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "packing": True,
        "packing_strategy": "wrapped",
        "max_length": 256,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "eval_strategy": "steps",
        "eval_steps": 10,
    }
    assert {} == idle_options(facts_of(options=options))


def test_what_the_user_did_not_set_is_not_theirs() -> None:
    assert {} == idle_options(facts_of(trainer=Trainer.DPO))


def test_one_reason_is_one_sentence() -> None:
    found = idle_options(facts_of(options={"lora_r": 64, "lora_alpha": 16}))
    assert (
        "Without effect in your config: lora_r 64, lora_alpha 16: there are no adapters without "
        "use_peft.",
    ) == idle_words("your config", found)


def test_every_option_has_one_reason_to_be_idle() -> None:
    names = [name for row in DEPENDENTS for name in row.options]
    assert len(names) == len(set(names))
