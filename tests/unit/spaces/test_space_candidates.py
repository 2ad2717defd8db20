"""From a space to its valid candidates: canonical, without repeats, with reasons for the rest."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.candidate import Value
from autotune.core.environment import Device
from autotune.core.job import ALLOWABLE, Trainer
from autotune.knobs.catalog import user_candidate
from autotune.knobs.changes import words_for
from autotune.knobs.facts import Facts
from autotune.knobs.knob import OFFLINE
from autotune.knobs.retention import retention
from autotune.knobs.rules import judge
from autotune.knobs.translate import canonical
from autotune.spaces.enumerate import (
    MOST_ASSIGNMENTS,
    Enumerated,
    enumerate_space,
)
from autotune.spaces.load import find_space, list_spaces, read_space
from autotune.spaces.schema import Space
from tests.support.facts import CPU, GPU, facts_of

SFT = read_space(find_space("sft"))


def space_of(**knobs: Any) -> Space:
    document = {"schema_version": 1, "name": "x", "trainer": "sft", "describe": "x"}
    return Space.model_validate({**document, "knobs": knobs})


def values(found: Enumerated, knob: str) -> set[Value]:
    return {c.get(knob) for c in found.candidates}


def test_every_candidate_is_valid_canonical_and_there_once() -> None:
    facts = facts_of(device=GPU)
    found = enumerate_space(SFT, facts, {})
    assert len(found.candidates) > 50
    assert len({c.key for c in found.candidates}) == len(found.candidates)
    for candidate in found.candidates:
        assert candidate == canonical(candidate, facts)
        assert judge(candidate, facts).valid


def test_the_list_and_its_order_depend_on_space_and_facts_alone() -> None:
    assert enumerate_space(SFT, facts_of(), {}) == enumerate_space(SFT, facts_of(), {})


def test_what_is_left_out_is_counted_with_its_reason() -> None:
    found = enumerate_space(SFT, facts_of(), {})
    reasons = " ".join(s.reason for s in found.skipped)
    assert "accelerator" in reasons
    assert "packing bfd_split at max_length 128, 256, 512: only with --allow split" in reasons
    assert all(s.count > 0 for s in found.skipped)
    assert found.merged > 0


def test_a_conditional_knob_varies_only_under_its_condition() -> None:
    space = space_of(
        packing=["none", "bfd"],
        pad_to_multiple_of={"choices": [None, 8], "when": {"packing": ["none"]}},
        max_length=[400],
    )
    facts = facts_of([399] * 64)
    found = enumerate_space(space, facts, {})
    plain = [c for c in found.candidates if c.get("packing") == "none"]
    assert {c.get("pad_to_multiple_of") for c in plain} == {None, 8}
    packed = [c for c in found.candidates if c.get("packing") == "bfd"]
    assert len(packed) == len({c.key for c in packed}) == 1


def test_a_pinned_knob_keeps_the_users_choice() -> None:
    facts = facts_of(options={"gradient_checkpointing": False})
    found = enumerate_space(SFT, facts, {"gradient_checkpointing": False})
    assert values(found, "gradient_checkpointing") == {"none"}
    assert "gradient_checkpointing" not in found.choices


def test_a_knob_the_space_leaves_out_keeps_the_users_choice() -> None:
    found = enumerate_space(
        space_of(per_device_train_batch_size="auto"), facts_of(options={"max_length": 900}), {}
    )
    assert values(found, "max_length") == {900}
    assert values(found, "packing") == {"none"}


def test_batches_go_up_to_the_effective_batch_and_include_the_users_own() -> None:
    options = {"per_device_train_batch_size": 6, "gradient_accumulation_steps": 4}
    found = enumerate_space(
        space_of(per_device_train_batch_size="auto"), facts_of(options=options), {}
    )
    assert found.choices["per_device_train_batch_size"] == (1, 2, 4, 6, 8, 16, 24)


def test_no_batch_is_larger_than_the_data_set() -> None:
    facts = facts_of([50] * 5, options={"per_device_train_batch_size": 32})
    found = enumerate_space(space_of(per_device_train_batch_size="auto"), facts, {})
    assert max(int(c.get("per_device_train_batch_size") or 0) for c in found.candidates) <= 5


def test_padding_free_at_batch_1_is_never_a_candidate() -> None:
    found = enumerate_space(SFT, facts_of(), {})
    assert any(c.get("padding_free") for c in found.candidates)
    assert not any(
        c.get("padding_free") and c.get("per_device_train_batch_size") == 1
        for c in found.candidates
    )


def test_choices_that_do_nothing_in_any_candidate_are_said_once() -> None:
    # BC41
    space = space_of(padding_free=[False, True], per_device_train_batch_size=[1, 4])
    found = enumerate_space(space, facts_of(trainer=Trainer.DPO), {})
    (line,) = [n for n in found.notices if n.startswith("Without effect in any candidate")]
    assert "padding_free true: trl dpo switches it off" in line
    sft = enumerate_space(space, facts_of(), {})
    assert not any("padding_free" in n for n in sft.notices), "at batch 4 it does something"


def test_short_rows_on_a_model_of_few_positions_leave_candidates() -> None:
    facts = facts_of([20, 40, 60] * 20, positions=64)
    assert len(enumerate_space(SFT, facts, {}).candidates) > 5


def test_an_explicit_length_is_never_exceeded_and_always_there() -> None:
    facts = facts_of(options={"max_length": 512}, min_retention_ratio=0.5)
    found = enumerate_space(SFT, facts, {})
    lengths = {int(n) for n in values(found, "max_length") if n is not None}
    assert max(lengths) == 512


def test_one_row_is_enough_for_a_space() -> None:
    facts: Facts = facts_of([40], options={"per_device_train_batch_size": 1})
    assert enumerate_space(SFT, facts, {}).candidates


def test_every_preset_leaves_candidates_for_every_offline_trainer() -> None:
    for trainer in OFFLINE:
        order = {"train_sampling_strategy": "sequential"} if trainer is Trainer.KTO else {}
        facts = facts_of(trainer=trainer, options=order)
        for _, space in list_spaces():
            if space.suits(trainer):
                found = enumerate_space(space, facts, {})
                assert found.candidates, f"{space.name} for {trainer}"
                assert len({c.key for c in found.candidates}) == len(found.candidates)


def test_a_condition_on_a_knob_that_is_not_searched_looks_at_the_users_own() -> None:
    space = space_of(
        per_device_train_batch_size=[4],
        pad_to_multiple_of={"choices": [None, 8], "when": {"padding_free": [False]}},
    )
    options = {"padding_free": True, "max_length": None}
    assert {None, 8} == values(enumerate_space(space, facts_of(), {}), "pad_to_multiple_of")
    flattened = enumerate_space(space, facts_of(options=options), {})
    assert {None} == values(flattened, "pad_to_multiple_of")
    pinned = enumerate_space(space, facts_of(options=options), {"padding_free": True})
    assert flattened.candidates == pinned.candidates


@pytest.mark.parametrize("name", ["sft", "thorough"])
def test_what_is_tried_depends_on_no_order_in_the_file(name: str) -> None:
    space = read_space(find_space(name))
    turned = {
        n: {"choices": d.choices if d.choices == "auto" else d.choices[::-1], "when": d.when}
        for n, d in reversed(space.dimensions().items())
    }
    again = Space.model_validate({**space.model_dump(), "knobs": turned})
    facts = facts_of(allow=frozenset(ALLOWABLE))
    assert enumerate_space(space, facts, {}) == enumerate_space(again, facts, {})


def test_a_space_of_one_choice_is_one_candidate() -> None:
    facts = facts_of(options={"max_length": 1024})
    found = enumerate_space(space_of(per_device_train_batch_size=[4]), facts, {})
    assert [4] == [c.get("per_device_train_batch_size") for c in found.candidates]


def test_a_space_in_which_nothing_is_valid_says_why_and_leaves_the_users_own() -> None:
    found = enumerate_space(space_of(per_device_train_batch_size=[3, 5]), facts_of(), {})
    assert () == found.candidates
    (said,) = (n for n in found.notices if n.startswith("Nothing in the space x may be tried"))
    assert "one update would see" in said and said.endswith("your own config is measured.")


def test_a_space_whose_choices_the_machine_lacks_keeps_the_users_own() -> None:
    found = enumerate_space(space_of(activation_offloading=[True]), facts_of(), {})
    assert ["Not tried: activation_offloading true"] == [
        n.rpartition(": ")[0] for n in found.notices
    ]
    assert {False} == values(found, "activation_offloading")


def test_knobs_that_the_trainer_does_not_have_are_named_once() -> None:
    quick = read_space(find_space("quick"))
    said = "Not tried, since reward has no such knob: packing, padding_free."
    assert said in enumerate_space(quick, facts_of(trainer=Trainer.REWARD), {}).notices
    assert not any("no such knob" in n for n in enumerate_space(quick, facts_of(), {}).notices)


def test_two_names_of_one_loss_are_tried_once_and_two_losses_apart() -> None:
    space = space_of(loss_type=["nll", "chunked_nll"])
    newest = enumerate_space(space, facts_of(versions={"trl": "1.16.0"}), {})
    assert ({"nll"}, 0) == (values(newest, "loss_type"), newest.merged)
    older = enumerate_space(space, facts_of(versions={"trl": "1.14.2"}), {})
    assert {"nll", "chunked_nll"} == values(older, "loss_type")
    multiple = {"choices": [None, 8], "when": {"loss_type": ["chunked_nll"]}}
    conditional = space_of(loss_type=["chunked_nll"], pad_to_multiple_of=multiple)
    found = enumerate_space(conditional, facts_of(versions={"trl": "1.16.0"}), {})
    assert {None, 8} == values(found, "pad_to_multiple_of")


@pytest.mark.parametrize("own", [{}, {"per_device_train_batch_size": 8}], ids=["TRL's", "own"])
def test_where_the_split_of_a_batch_counts_the_users_own_is_tried(own: dict[str, Any]) -> None:
    facts = facts_of(trainer=Trainer.KTO, options={"train_sampling_strategy": "sequential", **own})
    found = enumerate_space(read_space(find_space("long-context")), facts, {})
    assert {8} == values(found, "per_device_train_batch_size")


def test_what_cannot_be_tried_is_one_sentence_a_reason_and_costs_no_candidate() -> None:
    absent = {"bitsandbytes": "the package bitsandbytes is not installed"}
    facts = facts_of(lacking=absent, allow=frozenset({"optimizer", "quantization", "peft"}))
    found = enumerate_space(SFT, facts, {})
    said = [n for n in found.notices if "bitsandbytes" in n]
    assert [
        "Not tried: optim adamw_8bit; quantization 4bit: the package bitsandbytes is not installed."
    ] == said
    assert "quantization" in found.choices
    assert ("none",) == found.choices["quantization"]


def test_what_needs_a_word_of_allow_is_opened_by_it() -> None:
    closed = enumerate_space(SFT, facts_of(), {})
    assert {"none"} == values(closed, "peft")
    assert (
        "Not tried without --allow split,optimizer,dtype,quantization,peft: packing bfd_split at "
        "max_length 128, 256, 512; optim adamw_8bit; dtype bfloat16; quantization 4bit; peft lora."
    ) in closed.notices
    assert any(line.reason.endswith("only with --allow peft") for line in closed.skipped)
    opened = enumerate_space(SFT, facts_of(allow=frozenset({"peft", "quantization"})), {})
    assert {"none", "lora"} == values(opened, "peft")
    assert all(
        c.get("peft") == "lora" for c in opened.candidates if c.get("quantization") == "4bit"
    )


def test_documents_are_only_split_below_the_users_length_with_their_word() -> None:
    # https://github.com/huggingface/trl/issues/6668 and its kind: what a label sees is learned too
    for own in ({"max_length": 600}, {}):
        closed = enumerate_space(SFT, facts_of(options=own), {})
        split = [c for c in closed.candidates if c.get("packing") == "bfd_split"]
        assert all(retention(c, facts_of(options=own)) >= 0.99 for c in split)
    opened = enumerate_space(SFT, facts_of(allow=frozenset({"split"})), {})
    assert {128, 256} <= {
        c.get("max_length") for c in opened.candidates if c.get("packing") == "bfd_split"
    }
    assert not any("split" in notice for notice in opened.notices)


def test_a_knob_whose_options_are_pinned_is_not_searched() -> None:
    facts = facts_of(options={"use_peft": True}, allow=frozenset({"peft"}))
    found = enumerate_space(SFT, facts, {"use_peft": True})
    assert "peft" not in found.choices
    assert {"lora"} == values(found, "peft")


def test_conditions_may_have_several_levels() -> None:
    space = space_of(
        max_length=[900],
        peft=["none", "lora"],
        quantization={"choices": ["none", "4bit"], "when": {"peft": ["lora"]}},
        dtype={"choices": ["float32", "bfloat16"], "when": {"quantization": ["4bit"]}},
    )
    facts = facts_of(allow=frozenset({"peft", "quantization", "dtype"}))
    found = enumerate_space(space, facts, {})
    seen = [(c.get("peft"), c.get("quantization"), c.get("dtype")) for c in found.candidates]
    assert [
        ("none", "none", "float32"),
        ("lora", "none", "float32"),
        ("lora", "4bit", "float32"),
        ("lora", "4bit", "bfloat16"),
    ] == seen


def test_a_space_too_large_to_look_at_is_sampled_the_same_way_and_says_so() -> None:
    facts = facts_of(allow=frozenset(ALLOWABLE))
    thorough = read_space(find_space("thorough"))
    found = enumerate_space(thorough, facts, {})
    assert found == enumerate_space(thorough, facts, {})
    assert 100 < len(found.candidates) <= MOST_ASSIGNMENTS + 100
    assert any("a fixed sample of 5,000" in line.reason for line in found.skipped)
    for name, tried in found.choices.items():
        if name not in ("max_length", "per_device_train_batch_size", "loss_type"):
            assert len(values(found, name)) > 1 or len(tried) == 1, name


def test_a_space_that_does_not_search_the_length_keeps_the_users_own() -> None:
    # TRL's implicit max_length keeps less than what is asked of a searched one.
    facts = facts_of([3000] * 40, positions=4096)
    neutral = enumerate_space(read_space(find_space("neutral-only")), facts, {})
    assert {1024} == values(neutral, "max_length")


OWN: dict[str, dict[str, Any]] = {
    "an optimizer of the table": {"optim": "adamw_8bit"},
    "a paged optimizer": {"optim": "paged_adamw_8bit"},
    "an optimizer no space lists": {"optim": "sgd"},
    "adapters": {"use_peft": True, "lora_r": 12, "lora_target_modules": ["q_proj", "v_proj"]},
    "quantized weights": {"use_peft": True, "load_in_4bit": True},
    "a dtype": {"dtype": "bfloat16"},
    "a dtype among the init keywords": {"model_init_kwargs": {"dtype": "bfloat16"}},
    "a loss": {"loss_type": "dft"},
    "rows that mix": {"packing": True, "packing_strategy": "wrapped", "max_length": 128},
}


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("pinned", [True, False], ids=["set", "config"])
@pytest.mark.parametrize("case", OWN)
def test_what_the_user_sets_needs_no_word_of_allow(case: str, pinned: bool, device: Device) -> None:
    facts = facts_of(device=device, options=OWN[case], allow=frozenset({"effective-batch"}))
    own = canonical(user_candidate(facts), facts)
    found = enumerate_space(SFT, facts, OWN[case] if pinned else {})
    assert len(found.candidates) > 5
    for name in ("optim", "peft", "lora_r", "lora_target_modules", "quantization", "dtype"):
        assert own.get(name) in values(found, name), name
    assert not any(words_for(candidate, facts) for candidate in found.candidates)


def test_allowing_a_change_keeps_what_the_user_set_among_what_is_tried() -> None:
    facts = facts_of(options={"optim": "sgd"}, allow=frozenset({"optimizer"}))
    assert {"sgd", "adamw_8bit"} < values(enumerate_space(SFT, facts, {}), "optim")
