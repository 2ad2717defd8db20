"""What of the user's own config is refused before any probe."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.knobs.unmeasured import UNMEASURED, unmeasured

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
