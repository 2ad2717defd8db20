"""What of the user's own config is refused before any probe, and what is remarked on."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.knobs.mended import mended
from autotune.knobs.unmeasured import UNMEASURED, unmeasured
from autotune.knobs.versions import canonical_options

NOT_MEASURED: dict[str, dict[str, Any]] = {
    "fsdp": {"fsdp": "full_shard"},
    "deepspeed": {"deepspeed": "zero3.json"},
    "parallelism_config": {"parallelism_config": {"tp_size": 2}},
    "keep_end": {"truncation_mode": "keep_end"},
    "batch_rebalance": {"train_sampling_strategy": "batch_rebalance"},
    "quantization_config": {"model_init_kwargs": {"quantization_config": {"load_in_4bit": True}}},
}


@pytest.mark.parametrize("word", NOT_MEASURED)
def test_what_is_not_measured_is_named_with_what_to_do_instead(word: str) -> None:
    found = unmeasured(NOT_MEASURED[word])
    assert found is not None
    assert word in found.reason
    assert found.advice


def test_every_refusal_has_an_example_and_a_plain_config_meets_none() -> None:
    assert len(UNMEASURED) == len(NOT_MEASURED)
    plain = {"fsdp": "", "deepspeed": None, "model_init_kwargs": '{"use_cache": false}'}
    assert unmeasured({**plain, "train_sampling_strategy": "group_by_length"}) is None


MENDED: dict[str, tuple[Trainer, dict[str, Any], str]] = {
    "adapters of a reward model": (Trainer.REWARD, {"use_peft": True}, "SEQ_CLS"),
    "a dtype by its old name": (
        Trainer.DPO,
        {"model_init_kwargs": {"torch_dtype": "bfloat16"}},
        "beside the dtype trl gives (float32)",
    ),
}


@pytest.mark.parametrize("case", MENDED)
def test_a_config_that_is_written_otherwise_to_train_is_told_so(case: str) -> None:
    trainer, options, words = MENDED[case]
    (sentence,) = mended(trainer, options)
    assert words in sentence


@pytest.mark.parametrize(
    ("trainer", "options"),
    [
        (Trainer.SFT, {"model_init_kwargs": {"dtype": "auto", "torch_dtype": "auto"}}),
        (Trainer.REWARD, {"use_peft": True, "lora_task_type": "SEQ_CLS"}),
        (Trainer.SFT, {"use_peft": True}),
    ],
)
def test_a_config_that_trains_as_it_stands_is_not_remarked(
    trainer: Trainer, options: dict[str, Any]
) -> None:
    assert () == mended(trainer, options)


def test_a_strategy_by_its_old_name_is_the_new_one() -> None:
    old = {"packing": True, "packing_strategy": "bfd-requeue"}
    assert {"packing": True, "packing_strategy": "bfd_split"} == canonical_options(old)
    assert {"packing_strategy": "wrapped"} == canonical_options({"packing_strategy": "wrapped"})
