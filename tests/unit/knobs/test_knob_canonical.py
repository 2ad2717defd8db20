"""Configurations that make TRL do the same are one candidate, so that none is run twice."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical
from tests.support.facts import GPU, candidate_of, facts_of

#: kind of case: (facts, one, other)
ALIKE: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "padding-free in DPO, which switches it off (BC41)": (
        {"trainer": Trainer.DPO},
        {"padding_free": True},
        {"padding_free": False},
    ),
    "a pad multiple that pads no row further": (
        {"tokens": [64, 128, 192] * 9},
        {"pad_to_multiple_of": 64},
        {"pad_to_multiple_of": None},
    ),
    "two pad multiples that pad alike": (
        {"tokens": [60, 124] * 9},
        {"pad_to_multiple_of": 64},
        {"pad_to_multiple_of": 32},
    ),
    "ranks without adapters": (
        {},
        {"peft": "none", "lora_r": 8},
        {"peft": "none", "lora_r": 64, "lora_target_modules": "all-linear"},
    ),
    "the model's own attention by its name": (
        {},
        {"attn_implementation": None},
        {"attn_implementation": "sdpa"},
    ),
    "selective checkpointing that finds nothing to keep": (
        {},
        {"attn_implementation": "eager", "gradient_checkpointing": "selective"},
        {"attn_implementation": "eager", "gradient_checkpointing": "full"},
    ),
    "two names of one loss": ({}, {"loss_type": "chunked_nll"}, {"loss_type": "nll"}),
    "paging on the CPU": ({}, {"optim": "paged_adamw_8bit"}, {"optim": "adamw_8bit"}),
    "emptying a cache the CPU has not": (
        {},
        {"torch_empty_cache_steps": 10},
        {"torch_empty_cache_steps": None},
    ),
    "the allocator of a GPU on the CPU": (
        {},
        {"allocator": "expandable_segments"},
        {"allocator": "default"},
    ),
    "the order of a stream": (
        {"options": {"dataset_streaming": True}},
        {"train_sampling_strategy": "group_by_length"},
        {"train_sampling_strategy": "random"},
    ),
}

UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "paging on a GPU": ({"device": GPU}, {"optim": "paged_adamw_8bit"}, {"optim": "adamw_8bit"}),
    "two names of what were two losses": (
        {"versions": {"trl": "1.14.2"}},
        {"loss_type": "chunked_nll"},
        {"loss_type": "nll"},
    ),
    "sdpa where the model has none of its own": (
        {"traits": ["no-sdpa"]},
        {"attn_implementation": "sdpa"},
        {"attn_implementation": None},
    ),
    "a pad multiple that widens some row": (
        {"tokens": [64, 130] * 9},
        {"pad_to_multiple_of": 64},
        {"pad_to_multiple_of": None},
    ),
    "pad multiples of KTO, whose other completions are not known": (
        {"tokens": [64, 128] * 9, "trainer": Trainer.KTO},
        {"pad_to_multiple_of": 64},
        {"pad_to_multiple_of": None},
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_what_differs_in_name_only_is_one_candidate(case: str) -> None:
    made, one, other = ALIKE[case]
    assert same(facts_of(**made), one, other)


@pytest.mark.parametrize("case", UNLIKE)
def test_what_differs_for_this_job_is_two_candidates(case: str) -> None:
    made, one, other = UNLIKE[case]
    assert not same(facts_of(**made), one, other)


def same(facts: Facts, one: dict[str, Any], other: dict[str, Any]) -> bool:
    return canonical(candidate_of(**one), facts) == canonical(candidate_of(**other), facts)


SHORT = facts_of([50, 120, 200] * 10)

MERGED = {
    "padding-free at batch 1 (BC40)": (
        {"per_device_train_batch_size": 1, "padding_free": True, "max_length": 128},
        {"per_device_train_batch_size": 1, "padding_free": False, "max_length": 128},
    ),
    "padding-free under bfd, which forces it": (
        {"packing": "bfd", "max_length": 256, "padding_free": True},
        {"packing": "bfd", "max_length": 256, "padding_free": False},
    ),
    "bfd and bfd_split when every row fits": (
        {"packing": "bfd", "max_length": 256},
        {"packing": "bfd_split", "max_length": 256},
    ),
    "pad multiples under flattening (BC41)": (
        {"padding_free": True, "pad_to_multiple_of": 8, "max_length": 128},
        {"padding_free": True, "pad_to_multiple_of": None, "max_length": 128},
    ),
    "pad multiples under bfd": (
        {"packing": "bfd", "max_length": 256, "pad_to_multiple_of": 64},
        {"packing": "bfd", "max_length": 256, "pad_to_multiple_of": None},
    ),
    "a max_length beyond the longest row": ({"max_length": 512}, {"max_length": 2048}),
    "no max_length and one beyond the longest row": ({"max_length": None}, {"max_length": 512}),
}

KEPT_APART = {
    "padding-free at batch 2": (
        {"per_device_train_batch_size": 2, "padding_free": True},
        {"per_device_train_batch_size": 2, "padding_free": False},
    ),
    "bfd and bfd_split when a row overflows": (
        {"packing": "bfd", "max_length": 128},
        {"packing": "bfd_split", "max_length": 128},
    ),
    "packed lengths beyond the longest row": (
        {"packing": "bfd", "max_length": 256},
        {"packing": "bfd", "max_length": 512},
    ),
    "lengths that cut": ({"max_length": 128}, {"max_length": 199}),
    "wrapped, which does not flatten by itself": (
        {"packing": "wrapped", "max_length": 128, "padding_free": True},
        {"packing": "wrapped", "max_length": 128, "padding_free": False},
    ),
    "pad multiples of wrapped rows": (
        {"packing": "wrapped", "max_length": 100, "pad_to_multiple_of": 64},
        {"packing": "wrapped", "max_length": 100, "pad_to_multiple_of": None},
    ),
    "variants of checkpointing": (
        {"gradient_checkpointing": "full"},
        {"gradient_checkpointing": "selective"},
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_what_makes_trl_do_the_same_is_merged(case: str) -> None:
    assert same(SHORT, *MERGED[case])


@pytest.mark.parametrize("case", KEPT_APART)
def test_what_makes_trl_do_something_else_is_kept_apart(case: str) -> None:
    assert not same(SHORT, *KEPT_APART[case])


@pytest.mark.parametrize(
    "knobs", [k for pair in (*MERGED.values(), *KEPT_APART.values()) for k in pair]
)
def test_the_canonical_form_is_its_own(knobs: dict[str, Any]) -> None:
    once = canonical(candidate_of(**knobs), SHORT)
    assert once == canonical(once, SHORT)


def test_whole_rows_are_written_as_the_users_own_length_when_it_is_enough() -> None:
    facts = facts_of([50, 200], options={"max_length": 512})
    assert 512 == canonical(candidate_of(max_length=4096), facts).get("max_length")
    short = facts_of([50, 200], options={"max_length": 100})
    assert 200 == canonical(candidate_of(max_length=4096), short).get("max_length")


def test_knobs_a_space_does_not_have_stay_absent() -> None:
    few = Candidate(knobs={"max_length": 100, "per_device_train_batch_size": 1})
    assert canonical(few, SHORT) == few
