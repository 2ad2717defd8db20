"""Options that are gone are answered with what takes their place."""

from __future__ import annotations

from autotune.knobs.former import FORMER, what_replaces
from autotune.knobs.versions import RENAMED


def test_an_option_that_is_gone_names_the_new_one() -> None:
    assert "max_length takes its place" == what_replaces("max_seq_length")
    assert "prompt and completion together, takes its place" in str(
        what_replaces("max_completion_length")
    )
    assert "nothing takes its place" == what_replaces("padding_value")
    assert what_replaces("max_lenght") is None


def test_what_still_has_two_names_is_not_among_what_is_gone() -> None:
    assert not {*RENAMED, *RENAMED.values()} & set(FORMER)
