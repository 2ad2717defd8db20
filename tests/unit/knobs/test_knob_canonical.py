"""Configurations that make TRL do the same are one candidate, so that none is run twice."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical
from tests.support.facts import candidate_of, facts_of


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
