"""The constraints ``make test-oldest`` installs."""

from __future__ import annotations

from tests.oldest import constraints, declared, pinned


def test_every_dependency_is_held_to_its_lower_bound_and_torch_to_the_one_given() -> None:
    lines = constraints("9.9")
    assert "torch==9.9" in lines
    assert f"trl=={declared()['trl']}" in lines
    assert len(declared()) == len(lines)


def test_the_default_torch_is_the_one_this_project_is_developed_with() -> None:
    assert pinned("torch") == pinned("torch").strip() != ""
