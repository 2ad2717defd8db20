from __future__ import annotations

import pytest
from pydantic import ValidationError

from autotune.core.candidate import Candidate


def test_equal_knobs_in_another_order_are_the_same_candidate() -> None:
    one = Candidate(knobs={"packing": "bfd", "max_length": 512})
    other = Candidate(knobs={"max_length": 512, "packing": "bfd"})
    assert one == other
    assert one.key == other.key


def test_a_choice_of_another_type_is_another_candidate() -> None:
    keys = {Candidate(knobs={"x": value}).key for value in (1, True, "1", None, 1.5)}
    assert len(keys) == 5


def test_differences_name_both_sides_and_absent_knobs() -> None:
    mine = Candidate(knobs={"a": 1, "b": 2})
    theirs = Candidate(knobs={"b": 3, "c": 4})
    assert mine.differences(theirs) == {"a": (1, None), "b": (2, 3), "c": (None, 4)}


def test_changing_a_knob_leaves_the_candidate_itself_alone() -> None:
    mine = Candidate(knobs={"a": 1})
    assert mine.with_knobs(a=2).get("a") == 2
    assert mine.get("a") == 1
    with pytest.raises(ValidationError):
        mine.knobs = {}  # type: ignore[misc]
