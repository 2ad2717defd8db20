"""Every validity rule: one example it accepts and one it rejects, with the reason it gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.job import ALLOWABLE, Trainer
from autotune.core.positions import Positions
from autotune.knobs.catalog import BY_NAME, user_candidate
from autotune.knobs.changes import change_class, words_for
from autotune.knobs.facts import Facts
from autotune.knobs.needs import EVALUATED_4BIT, why_not
from autotune.knobs.retention import (
    documents_of,
    earned_ratio,
    retention,
    useful_tokens_ratio,
)
from autotune.knobs.rules import RULES, judge
from autotune.knobs.translate import canonical
from autotune.probe.child.dtype import settle_dtype
from tests.support.facts import GPU, candidate_of, facts_of

OFFLOAD = {"activation_offloading": True}
PEFT: dict[str, Any] = {"allow": frozenset({"peft", "quantization", "dtype"})}
SKIP = {"dataset_kwargs": {"skip_prepare_dataset": True}}
EVERY_OTHER = {"every_n_layers": 2}
LONG = {"per_device_train_batch_size": 2, "max_length": 1024}

#: rule: (facts, a candidate it accepts, one it rejects, words of its reason)
EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "packing_needs_a_length": (
        {},
        {"packing": "wrapped", "max_length": 256},
        {"packing": "wrapped", "max_length": None},
        "packing needs a max_length",
    ),
    "streams_fill_an_update": (
        {
            "tokens": [20] * 5,
            "options": {
                "dataset_streaming": True,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 3,
            },
        },
        {"per_device_train_batch_size": 2},
        {"per_device_train_batch_size": 1},
        "the 5 rows of the stream never fill an update of 1 x 6",
    ),
    "evaluated_weights_train": (
        {**PEFT, "trainer": Trainer.DPO, "lacking": {EVALUATED_4BIT: "no gradient passes"}},
        {"peft": "lora", "quantization": "8bit", "precompute_ref_log_probs": True},
        {"peft": "lora", "quantization": "4bit", "precompute_ref_log_probs": True},
        "no gradient passes",
    ),
    "model_has_the_attention": (
        {"traits": ["no-sdpa"]},
        {"attn_implementation": "eager"},
        {"attn_implementation": "sdpa"},
        "cannot run attn_implementation sdpa",
    ),
    "length_within_positions": (
        {"tokens": [100] * 20 + [1000] * 20, "positions": 1000},
        {"max_length": 1000},
        {"max_length": 1000, "pad_to_multiple_of": 64},
        "1024",
    ),
    "length_within_training": (
        {"tokens": [1000] * 20, "positions": Positions(most=512, field="n_ctx", fixed=False)},
        {"max_length": 512},
        {"max_length": 1024},
        "beyond the model's 512 positions (n_ctx)",
    ),
    "machine_has_it": ({}, {}, OFFLOAD, "accelerator"),
    "versions_want_it": (
        {"device": GPU, "versions": {"trl": "1.16.0"}},
        {"use_kernels": True},
        {"use_liger_kernel": True},
        "use_kernels takes its place",
    ),
    "streams_have_no_reference_beforehand": (
        {"trainer": Trainer.DPO, "options": {"dataset_streaming": True}},
        {"precompute_ref_log_probs": False},
        {"precompute_ref_log_probs": True},
        "a stream is not all there",
    ),
    "lengths_are_known_to_the_sampler": (
        {"trainer": Trainer.DPO},
        {"train_sampling_strategy": "sequential"},
        {"train_sampling_strategy": "group_by_length"},
        "input_ids",
    ),
    "kto_compares_rows_of_a_batch": (
        {"trainer": Trainer.KTO, "allow": frozenset({"batch-split"})},
        {"per_device_train_batch_size": 2},
        {"per_device_train_batch_size": 1},
        "a batch of 1 has nothing to compare",
    ),
    "selective_is_for_sft": (
        {"trainer": Trainer.REWARD},
        {"gradient_checkpointing": "full"},
        {"gradient_checkpointing": "selective"},
        "for sft",
    ),
    "selective_leaves_adapters_out": (
        PEFT,
        {"peft": "lora"},
        {"peft": "lora", "gradient_checkpointing": "selective"},
        "inside adapters",
    ),
    "quantized_weights_need_adapters": (
        PEFT,
        {"quantization": "4bit", "peft": "lora"},
        {"quantization": "4bit", "peft": "none"},
        "nothing to train",
    ),
    "eight_bits_have_no_dora": (
        PEFT,
        {"quantization": "4bit", "peft": "dora"},
        {"quantization": "8bit", "peft": "dora"},
        "lora, or 4bit, works",
    ),
    "reward_head_meets_its_input": (
        {**PEFT, "trainer": Trainer.REWARD},
        {"quantization": "4bit", "peft": "lora", "dtype": "bfloat16"},
        {"quantization": "4bit", "peft": "lora", "dtype": "float32"},
        "set dtype bfloat16",
    ),
    "fp16_trains_float32": (
        {**PEFT, "options": {"fp16": True}},
        {"dtype": "float16", "peft": "lora"},
        {"dtype": "float16"},
        "dtype is float16",
    ),
    "float16_is_scaled": (
        PEFT,
        {"dtype": "float16", "peft": "lora"},
        {"dtype": "float16"},
        "gradient scaler",
    ),
    "cpus_join_no_halves": (
        {**PEFT, "options": {"bf16": True}, "positions": Positions(most=2048, fixed=False)},
        {"quantization": "4bit", "dtype": "bfloat16", "peft": "lora"},
        {"quantization": "4bit", "dtype": "float16", "peft": "lora"},
        "fail in torch's bf16 autocast of a CPU",
    ),
    "adapters_fit_the_model": (
        {**PEFT, "unfit_adapters": {"dora on all-linear": "experts take no DoRA"}},
        {"peft": "rslora", "lora_target_modules": "all-linear"},
        {"peft": "dora", "lora_target_modules": "all-linear"},
        "dora on all-linear cannot be built on this model: experts take no DoRA",
    ),
    "checkpointing_outlives_the_reference": (
        {"trainer": Trainer.DPO, "options": {"gradient_checkpointing_kwargs": EVERY_OTHER}},
        {"precompute_ref_log_probs": True},
        {"precompute_ref_log_probs": False},
        "every_n_layers does not outlive",
    ),
    "checkpoints_are_offloaded_from_a_device": (
        {"options": {"gradient_checkpointing_kwargs": {"offload": True}}},
        {"gradient_checkpointing": "none"},
        {"gradient_checkpointing": "full"},
        "offload needs an accelerator",
    ),
    "liger_leaves_the_head": (
        {
            "device": GPU,
            "versions": {"trl": "1.15.0"},
            "options": {"liger_kernel_config": {"fused_linear_cross_entropy": True}},
        },
        {"use_liger_kernel": False},
        {"use_liger_kernel": True},
        "the same forward",
    ),
    "layerwise_optimizers_do_not_accumulate": (
        {"options": {"optim": "galore_adamw_layerwise"}},
        {"optim": "galore_adamw_layerwise", "per_device_train_batch_size": 8},
        {"optim": "galore_adamw_layerwise", "per_device_train_batch_size": 4},
        "does not accumulate",
    ),
    "flash_attention_is_half": (
        {"device": GPU, "allow": frozenset({"dtype"})},
        {"attn_implementation": "flash_attention_2", "dtype": "bfloat16"},
        {"attn_implementation": "flash_attention_2"},
        "bf16 or fp16 only",
    ),
    "layers_are_replaced_once": (
        {"device": GPU, "versions": {"trl": "1.15.0"}},
        {"use_liger_kernel": True},
        {"use_liger_kernel": True, "use_kernels": True},
        "the same layers",
    ),
    "reference_stays_as_it_is": (
        {"trainer": Trainer.DPO, "options": {"sync_ref_model": True}},
        {"precompute_ref_log_probs": False},
        {"precompute_ref_log_probs": True},
        "cannot be precomputed",
    ),
    "rows_are_prepared_by_trl": (
        {"options": SKIP},
        {},
        {"packing": "bfd", "max_length": 1024},
        "skip_prepare_dataset",
    ),
    "streams_are_not_cut_beforehand": (
        {"options": {"dataset_streaming": True}},
        {},
        {"padding_free": True},
        "a stream cannot be written cut",
    ),
    "batch_within_the_rows": (
        {"tokens": [50] * 6, "options": {"per_device_train_batch_size": 4}},
        {"per_device_train_batch_size": 4},
        {"per_device_train_batch_size": 8},
        "more than the 6 rows",
    ),
    "packed_rows_are_filled": (
        {"tokens": [5, 6], "options": {"per_device_train_batch_size": 2}},
        {"packing": "bfd", "max_length": 11, "per_device_train_batch_size": 1},
        {"packing": "bfd", "max_length": 512, "per_device_train_batch_size": 1},
        "11 tokens: nothing fills a packed row of 512",
    ),
    "no_longer_than_the_reference": (
        {"options": {"max_length": 512}, "min_retention_ratio": 0.0},
        {"max_length": 512},
        {"max_length": 640},
        "--allow longer",
    ),
    "documents_stay_whole": (
        {"allow": frozenset({"effective-batch"})},
        {"max_length": 1024, "packing": "bfd_split"},
        {"max_length": 256, "packing": "bfd_split"},
        "--allow split",
    ),
    "enough_is_kept": ({}, {"max_length": 896}, {"max_length": 128}, "--min-retention"),
    "effective_batch_held": (
        {"options": {"per_device_train_batch_size": 10}},
        {"per_device_train_batch_size": 5},
        {"per_device_train_batch_size": 4},
        "8.0 sequences instead of 10.0",
    ),
    "change_is_allowed": (
        {"allow": frozenset({"effective-batch"})},
        {"packing": "none"},
        {"packing": "wrapped", "max_length": 512},
        "--allow mixing",
    ),
}


def judged(facts: Facts, knobs: dict[str, Any], rule: str) -> tuple[str | None, str]:
    candidate = candidate_of(**knobs)
    found = {r.__name__: r for r in RULES}[rule](candidate, facts)
    return found, judge(candidate, facts).reason


@pytest.mark.parametrize("rule", [r.__name__ for r in RULES])
def test_every_rule_accepts_one_example_and_rejects_another_with_a_reason(rule: str) -> None:
    made, good, bad, words = EXAMPLES[rule]
    facts = facts_of(**made)
    assert judged(facts, good, rule)[0] is None
    reason, whole = judged(facts, bad, rule)
    assert reason is not None
    assert words in reason
    assert whole, "the verdict as a whole rejects it too"


def test_keywords_of_checkpointing_mean_nothing_where_nothing_is_recomputed() -> None:
    own = {"gradient_checkpointing_kwargs": {"every_n_layers": 2, "offload": True}}
    for trainer in (Trainer.SFT, Trainer.REWARD):
        facts = facts_of(trainer=trainer, device=GPU, options=own)
        assert judge(candidate_of(), facts).valid
    facts = facts_of(trainer=Trainer.KTO, options=own)
    bare = candidate_of(gradient_checkpointing="none", train_sampling_strategy="sequential")
    assert judge(bare, facts).valid, judge(bare, facts).reason


def test_a_length_beyond_the_positions_is_fine_while_no_row_is_that_long() -> None:
    # TRL's default max_length of 1024 on a model of 512 positions with short rows.
    facts = facts_of([100, 300, 200] * 10, positions=512)
    whole = canonical(candidate_of(max_length=None), facts)
    assert judge(whole, facts).valid, judge(whole, facts).reason
    packed = candidate_of(packing="bfd", max_length=1024, per_device_train_batch_size=1)
    assert judge(packed, facts).rule == "length_within_positions"


def test_offloading_is_valid_where_there_is_an_accelerator() -> None:
    assert judge(candidate_of(**OFFLOAD), facts_of(device=GPU)).valid


def test_offloading_is_pointless_where_the_memory_is_the_systems() -> None:
    # BC47
    shared = GPU.model_copy(update={"unified": True})
    reason = why_not(BY_NAME["activation_offloading"], True, facts_of(device=shared))
    assert "pointless" in reason


def test_a_micro_batch_of_packed_rows_cannot_be_more_than_there_are() -> None:
    facts = facts_of([100] * 30, options={"per_device_train_batch_size": 30})
    packed = candidate_of(packing="bfd", max_length=1000, per_device_train_batch_size=4)
    assert "3 packed rows" in judge(packed, facts).reason


def test_rows_without_a_trained_token_fill_no_micro_batch() -> None:
    options = {"max_length": 16, "per_device_train_batch_size": 4}
    facts = facts_of([151, 151, 151, 9], labels=[1, 1, 1, 1], options=options)
    two = candidate_of(max_length=16, per_device_train_batch_size=2)
    assert (
        "a batch of 2 is more than the 1 rows with a trained token at 16 tokens there are"
        == judge(two, facts).reason
    )


def test_packing_is_held_to_the_effective_batch_too() -> None:
    # About five documents of 100 tokens share a row of 512: one row is an update of five.
    facts = facts_of([100] * 200, options={"per_device_train_batch_size": 5})
    good = candidate_of(packing="bfd", max_length=512, per_device_train_batch_size=1)
    assert judge(good, facts).valid
    bad = candidate_of(packing="bfd", max_length=1024, per_device_train_batch_size=1)
    assert judge(bad, facts).rule == "effective_batch_held"


def test_what_the_user_allows_is_not_held_against_a_candidate() -> None:
    options = {"per_device_train_batch_size": 10, "max_length": 512}
    allowed = frozenset({"effective-batch", "longer", "mixing", "split"})
    facts = facts_of(options=options, allow=allowed, min_retention_ratio=0.0)
    for knobs in (
        {"per_device_train_batch_size": 4, "max_length": 512},
        {"per_device_train_batch_size": 10, "max_length": 640},
        {"per_device_train_batch_size": 1, "max_length": 256, "packing": "wrapped"},
    ):
        assert judge(candidate_of(**knobs), facts).valid, knobs


def test_the_users_own_config_is_not_held_to_what_they_ask_of_others() -> None:
    rotary = Positions(most=2048, fixed=False)
    options = {"per_device_train_batch_size": 10}
    facts = facts_of([3000] * 40, options=options, positions=rotary, effective_batch_sequences=8)
    own = canonical(user_candidate(facts), facts)
    assert judge(own, facts, own=True).valid
    assert not judge(own, facts).valid


def test_advice_to_allow_something_names_only_what_can_be_allowed() -> None:
    facts = facts_of(moe=True)
    reason = judge(candidate_of(per_device_train_batch_size=4), facts).reason
    words = reason.split("--allow ")[1].split()[0].split(",")
    assert ["batch-split"] == words
    assert {*words} <= {*ALLOWABLE}


def test_a_label_is_kept_only_with_what_comes_before_it() -> None:
    facts = facts_of([100, 300])
    assert retention(candidate_of(packing="bfd_split", max_length=100), facts) == 0.5
    assert retention(candidate_of(packing="bfd", max_length=100), facts) == 0.5
    assert retention(candidate_of(packing="bfd_split", max_length=300), facts) == 1.0
    assert retention(Candidate(knobs={"max_length": None}), facts) == 1.0


def test_splitting_below_the_users_own_length_needs_a_word_however_much_is_kept() -> None:
    options = {"max_length": 500, "per_device_train_batch_size": 1}
    given: dict[str, Any] = {"options": options, "allow": frozenset({"effective-batch"})}
    rows = [*[100] * 400, 500]
    split = candidate_of(packing="bfd_split", max_length=400, per_device_train_batch_size=1)
    reason = judge(split, facts_of(rows, **given)).reason
    assert "later pieces do not see what comes before them (--allow split accepts that)" in reason
    given["options"] = {"per_device_train_batch_size": 1}
    assert judge(split, facts_of(rows, **given)).valid  # 99.75 % keep theirs, and 99 % is asked
    given["min_retention_ratio"] = 0.999
    assert "documents_stay_whole" == judge(split, facts_of(rows, **given)).rule


def test_pieces_as_long_as_the_users_own_length_need_no_word() -> None:
    options = {"max_length": 200, "per_device_train_batch_size": 1}
    facts = facts_of([300] * 40, options=options, allow=frozenset({"effective-batch"}))
    split = candidate_of(packing="bfd_split", max_length=200, per_device_train_batch_size=1)
    assert judge(split, facts).valid
    assert (1.0, 40) == (retention(split, facts), documents_of(split, facts).split)
    # a third of what is trained is no part of the reference and earns nothing
    assert useful_tokens_ratio(split, facts) == pytest.approx(2 / 3)


def test_the_users_own_splitting_is_the_reference() -> None:
    own = {"packing": True, "packing_strategy": "bfd_split", "max_length": 200}
    facts = facts_of([300] * 40, options={**own, "per_device_train_batch_size": 1})
    assert 1.0 == retention(user_candidate(facts), facts)
    assert () == words_for(canonical(user_candidate(facts), facts), facts)
    cut = candidate_of(packing="bfd", max_length=200, per_device_train_batch_size=1)
    assert retention(cut, facts) == pytest.approx(2 / 3)
    assert "enough_is_kept" == judge(cut, facts).rule
    shorter = candidate_of(packing="bfd_split", max_length=100, per_device_train_batch_size=1)
    # labels 0 to 99 and 200 to 299 of every row begin a piece of both
    assert retention(shorter, facts) == pytest.approx(2 / 3)
    assert "documents_stay_whole" == judge(shorter, facts).rule


def test_what_is_split_with_the_users_word_counts_towards_the_objective() -> None:
    split = candidate_of(packing="bfd_split", max_length=100)
    for allow, earned in ((frozenset(), 0.5), (frozenset({"split"}), 1.0)):
        facts = facts_of([100, 300], allow=allow)
        assert (0.5, earned) == (retention(split, facts), earned_ratio(split, facts))
        assert "split" == change_class(split, facts)


def test_joined_rows_need_the_word_for_mixing_and_below_the_own_length_that_for_splitting() -> None:
    facts = facts_of([300] * 40, options={"max_length": 300})
    for length, words in ((300, ("mixing",)), (200, ("mixing", "split"))):
        wrapped = candidate_of(packing="wrapped", max_length=length)
        assert words == words_for(wrapped, facts)
        assert "mixing" == change_class(wrapped, facts)


def test_retention_counts_trained_tokens_not_prompts() -> None:
    # The prompt of 200 tokens is not trained: a cut at 200 keeps nothing of that row.
    facts = facts_of([100, 300], labels=[100, 100])
    assert retention(candidate_of(max_length=200), facts) == 0.5


#: every spelling of half-precision weights a user can choose (BC19)
HALF: dict[str, dict[str, Any]] = {
    "an option": {"dtype": "float16"},
    "a keyword of the loader": {"model_init_kwargs": {"dtype": "float16"}},
    "the checkpoint's own, by option": {"dtype": "auto"},
    "the checkpoint's own, by keyword": {"model_init_kwargs": {"dtype": "auto"}},
    "the loader's older keyword alone": {
        "dtype": None,
        "model_init_kwargs": {"torch_dtype": "float16"},
    },
    "extra modules beside adapters": {
        "use_peft": True,
        "lora_modules_to_save": ["lm_head"],
        "dtype": "auto",
    },
}


def settled(options: dict[str, Any], stored: str) -> Facts:
    """Return facts of a job whose checkpoint is stored so, its options as probes get them."""
    settle_dtype(options, SimpleNamespace(dtype=stored), [])
    return facts_of(options=options)


@pytest.mark.parametrize("case", HALF)
def test_fp16_over_half_weights_is_refused_however_they_are_chosen(case: str) -> None:
    facts = settled({"fp16": True, **HALF[case]}, "float16")
    verdict = judge(canonical(user_candidate(facts), facts), facts, own=True)
    assert "fp16_trains_float32" == verdict.rule
    assert "needs trained parameters in float32" in verdict.reason


def test_what_is_stored_in_half_and_loaded_in_full_may_train_with_fp16() -> None:
    facts = settled({"fp16": True}, "float16")
    assert judge(canonical(user_candidate(facts), facts), facts, own=True).valid


def test_auto_is_the_stored_precision_and_no_third_candidate() -> None:
    # BC41
    facts = settled({"dtype": "auto"}, "bfloat16")
    assert "bfloat16" == user_candidate(facts).get("dtype")
