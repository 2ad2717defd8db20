"""What a candidate means to TRL: options, accumulation, rows cut beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME, KNOBS, knob, knobs_of, user_candidate
from autotune.knobs.translate import canonical, settings
from tests.support.facts import GPU, candidate_of, facts_of


def options_of(knobs: dict[str, Any], **made: Any) -> dict[str, Any]:
    facts = facts_of(**made)
    return settings(canonical(candidate_of(**knobs), facts), facts).options


def test_the_batch_split_holds_the_effective_batch() -> None:
    options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    facts = facts_of(options=options)
    for batch, accumulation in ((1, 32), (2, 16), (16, 2), (32, 1)):
        made = settings(candidate_of(per_device_train_batch_size=batch), facts)
        assert accumulation == made.accumulation
        assert made.sequences_per_update == 32


def test_what_concerns_a_gpu_alone_stays_the_users_own_on_a_cpu() -> None:
    own = {"torch_empty_cache_steps": 4}
    env = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    facts = facts_of(options=own, env=env)
    made = settings(canonical(user_candidate(facts), facts), facts)
    assert own.items() <= made.options.items()
    assert env == made.env


def test_packed_rows_are_counted_in_documents() -> None:
    facts = facts_of([100] * 200, options={"per_device_train_batch_size": 20})
    packed = candidate_of(packing="bfd", max_length=512, per_device_train_batch_size=1)
    made = settings(packed, facts)
    assert made.accumulation == 4
    assert made.sequences_per_update == pytest.approx(20.0, rel=0.1)


def test_a_packing_user_asks_for_documents_too() -> None:
    options = {"packing": True, "max_length": 512, "per_device_train_batch_size": 2}
    facts = facts_of([100] * 200, options=options)
    assert facts.effective_batch == pytest.approx(10.0)
    own = canonical(user_candidate(facts), facts)
    assert settings(own, facts).accumulation == 1


def test_padding_free_needs_no_max_length_and_rows_cut_beforehand() -> None:
    # BC40: TRL refuses a max_length it would not enforce.
    facts = facts_of([50, 300] * 10)
    made = settings(candidate_of(padding_free=True, max_length=128), facts)
    assert made.options["max_length"] is None
    assert made.options["padding_free"] is True
    assert made.pretruncate_tokens == 128


def test_padding_free_cuts_nothing_when_no_row_is_too_long() -> None:
    facts = facts_of([50, 100] * 10)
    made = settings(candidate_of(padding_free=True, max_length=128), facts)
    assert made.pretruncate_tokens is None


def test_selective_checkpointing_is_a_keyword_and_leaves_with_checkpointing() -> None:
    assert options_of({"gradient_checkpointing": "selective"})["gradient_checkpointing_kwargs"] == {
        "selective": True
    }
    own = {"gradient_checkpointing_kwargs": {"selective": True, "preserve_rng_state": False}}
    off = options_of({"gradient_checkpointing": "none"}, options=own)
    assert off["gradient_checkpointing"] is False
    assert off["gradient_checkpointing_kwargs"] == {"preserve_rng_state": False}
    full = options_of({"gradient_checkpointing": "full"}, options=own)
    assert full["gradient_checkpointing_kwargs"] == {"preserve_rng_state": False}


def test_use_reentrant_of_the_user_survives() -> None:
    own = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
    assert options_of({"gradient_checkpointing": "selective"}, options=own)[
        "gradient_checkpointing_kwargs"
    ] == {"use_reentrant": False, "selective": True}


def test_what_equals_trls_default_and_the_user_left_out_is_not_written() -> None:
    made = options_of({})
    assert made == {"max_length": made["max_length"]}


def test_what_the_user_wrote_is_written_even_where_it_is_trls_default() -> None:
    made = options_of({"packing": "none"}, options={"packing": True, "max_length": 256})
    assert made["packing"] is False


def test_step_counts_follow_the_number_of_samples() -> None:
    options = {"per_device_train_batch_size": 10, "max_steps": 1000, "warmup_steps": 0.1}
    facts = facts_of([100] * 500, options=options)
    packed = candidate_of(packing="bfd", max_length=512, per_device_train_batch_size=2)
    same = settings(packed, facts)
    assert "max_steps" not in same.options
    assert "warmup_steps" not in same.options


def test_what_counts_updates_elsewhere_follows_too() -> None:
    options = {
        "per_device_train_batch_size": 8,
        "eval_strategy": "steps",
        "eval_delay": 100,
        "ref_model_sync_steps": 512,
        "lr_scheduler_kwargs": {"num_decay_steps": 200, "min_lr_ratio": 0.1},
    }
    made = options_of({}, options=options, effective_batch_sequences=32, trainer=Trainer.DPO)
    assert 25 == made["eval_delay"]
    assert 128 == made["ref_model_sync_steps"]
    assert {"num_decay_steps": 50, "min_lr_ratio": 0.1} == made["lr_scheduler_kwargs"]
    by_epoch = {**options, "eval_strategy": "epoch"}
    assert "eval_delay" not in options_of({}, options=by_epoch, effective_batch_sequences=32)


def test_step_counts_shrink_when_updates_see_more() -> None:
    options = {"per_device_train_batch_size": 8, "max_steps": 1000, "save_steps": 3}
    facts = facts_of([100] * 500, options=options, effective_batch_sequences=32)
    made = settings(candidate_of(per_device_train_batch_size=16), facts)
    assert made.accumulation == 2
    assert made.options["max_steps"] == 250
    assert made.options["save_steps"] == 1


def test_the_users_config_is_read_as_a_candidate() -> None:
    options = {
        "per_device_train_batch_size": 4,
        "max_length": 512,
        "packing": True,
        "packing_strategy": "bfd_split",
        "gradient_checkpointing": False,
    }
    own = user_candidate(facts_of(options=options))
    assert own.get("packing") == "bfd_split"
    assert own.get("gradient_checkpointing") == "none"
    assert own.get("per_device_train_batch_size") == 4
    assert own.get("pad_to_multiple_of") is None


@pytest.mark.parametrize("row", KNOBS, ids=lambda row: row.name)
def test_every_choice_of_every_knob_is_read_back_as_it_was_written(row: Any) -> None:
    choices = row.choices if row.choices is not None else (1, 7, 512)
    for choice in choices:
        written = row.write(choice, facts_of(device=GPU))
        mine: dict[str, Any] = {"env" if row.place == "environment" else "options": written}
        assert row.accepts(choice)
        assert choice == row.read(facts_of(device=GPU, **mine))


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "8"])
def test_a_number_knob_takes_whole_numbers_above_zero_only(wrong: Any) -> None:
    assert not BY_NAME["max_length"].accepts(wrong)


def test_a_listed_choice_must_have_the_listed_type() -> None:
    assert not BY_NAME["padding_free"].accepts(0)
    assert not BY_NAME["packing"].accepts(None)
    assert not BY_NAME["pad_to_multiple_of"].accepts(7)


def test_an_unknown_knob_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="'max_length'"):
        knob("max_lenght")


def test_only_sft_packs() -> None:
    assert "packing" in {k.name for k in knobs_of(Trainer.SFT)}
    assert "packing" not in {k.name for k in knobs_of(Trainer.DPO)}


def test_the_allocator_is_a_variable_and_never_an_option() -> None:
    facts = facts_of(device=GPU, versions={"torch": "2.13.0"})
    made = settings(candidate_of(allocator="expandable_segments"), facts)
    assert {"PYTORCH_ALLOC_CONF": "expandable_segments:True"} == made.env
    assert not any("alloc" in name.lower() for name in made.options)
    older = facts_of(device=GPU, versions={"torch": "2.9.1"})
    assert ["PYTORCH_CUDA_ALLOC_CONF"] == list(
        settings(candidate_of(allocator="expandable_segments"), older).env
    )


def test_knobs_that_write_into_the_models_keywords_leave_the_users_own() -> None:
    own = {"model_init_kwargs": {"dtype": "bfloat16", "rope_theta": 1e6}}
    facts = facts_of(device=GPU, options=own)
    assert "bfloat16" == user_candidate(facts).get("dtype")
    made = settings(candidate_of(dtype="float32", use_kernels=True), facts).options
    assert {"rope_theta": 1e6, "use_kernels": True} == made["model_init_kwargs"]


def test_without_workers_what_is_only_for_workers_goes_too() -> None:
    own = {
        "dataloader_num_workers": 4,
        "dataloader_prefetch_factor": 2,
        "dataloader_persistent_workers": True,
        "dataloader_multiprocessing_context": "spawn",
    }
    none = options_of({"dataloader_num_workers": 0}, options=own)
    assert (0, None, False, None) == tuple(none[name] for name in own)
    two = options_of({"dataloader_num_workers": 2}, options=own)
    assert {"dataloader_num_workers": 2} == {k: v for k, v in two.items() if k in own}


def test_compiling_ends_with_the_backend_that_starts_it() -> None:
    own = {"torch_compile_backend": "inductor", "torch_compile_mode": "reduce-overhead"}
    assert user_candidate(facts_of(options=own)).get("torch_compile") is True
    off = options_of({"torch_compile": False}, options=own)
    assert (None, None) == (off["torch_compile_backend"], off["torch_compile_mode"])
    assert "torch_compile_mode" not in options_of({"torch_compile": True}, options=own)


@pytest.mark.parametrize(("kind", "alpha"), [("lora", 128), ("dora", 128), ("rslora", None)])
def test_adapters_of_another_rank_are_scaled_as_before(kind: str, alpha: int | None) -> None:
    made = options_of({"peft": kind, "lora_r": 64}, allow=frozenset({"peft"}))
    assert alpha == made.get("lora_alpha")
    own = {"use_peft": True, "lora_r": 8, "lora_alpha": 8}
    assert 16 == options_of({"peft": "lora", "lora_r": 16}, options=own)["lora_alpha"]
    assert "lora_alpha" not in options_of({"peft": "lora", "lora_r": 8}, options=own)


def test_reward_adapters_are_those_of_a_classifier() -> None:
    made = settings(candidate_of(peft="dora"), facts_of(trainer=Trainer.REWARD)).options
    assert (True, True, "SEQ_CLS") == (
        made["use_peft"],
        made["use_dora"],
        made["lora_task_type"],
    )
    assert "lora_task_type" not in options_of({"peft": "lora"})


def test_checkpointing_that_is_not_reentrant_says_so_to_a_user_who_wrote_it() -> None:
    own = {"gradient_checkpointing_kwargs": {"use_reentrant": True}}
    assert "reentrant" == user_candidate(facts_of(options=own)).get("gradient_checkpointing")
    full = options_of({"gradient_checkpointing": "full"}, options=own)
    assert {"use_reentrant": False} == full["gradient_checkpointing_kwargs"]


@pytest.mark.parametrize("strategy", ["bfd", "bfd_split", "wrapped"])
def test_an_update_of_packed_rows_counts_the_users_documents(strategy: str) -> None:
    # 64 documents of 50 tokens: five of them fill a row of 256 but for 6 tokens.
    facts = facts_of([50] * 64, allow=frozenset({"mixing"}))
    knobs = {"packing": strategy, "max_length": 256, "per_device_train_batch_size": 1}
    made = settings(canonical(candidate_of(**knobs), facts), facts)
    assert 2 == made.accumulation
    assert 2 * 64 / 13 == pytest.approx(made.sequences_per_update)
