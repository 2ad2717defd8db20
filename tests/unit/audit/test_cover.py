"""Covering what rules allow and finding single faults and merges, on a made-up space."""

from __future__ import annotations

from itertools import combinations, product

from autotune.core.candidate import Candidate
from tests.audit.cover import Look, Space, covering, sort_out
from tests.audit.single import one_more

CHOICES = {
    "a": (0, 1, 2),
    "b": ("x", "y"),
    "c": (False, True),
    "d": (None, "p", "q"),
    "e": (1, 2, 3),
}


def form(candidate: Candidate) -> Candidate:
    """Search ``d=q`` as ``p``; without ``c`` drop ``e``."""
    knobs = dict(candidate.knobs)
    if knobs["d"] == "q":
        knobs["d"] = "p"
    if not knobs["c"]:
        knobs.pop("e", None)
    return Candidate(knobs=knobs)


def faults(candidate: Candidate) -> tuple[str, ...]:
    found = []
    if candidate.get("a") == 2:
        found.append("two_is_never_right")
    if candidate.get("b") == "y" and candidate.get("d") == "p":
        found.append("y_and_p_exclude_each_other")
    if candidate.get("c") and candidate.get("a") == 1 and candidate.get("e") == 3:
        found.append("three_at_once")
    return tuple(found)


def made_up() -> Space:
    start = Candidate(knobs={name: choices[0] for name, choices in CHOICES.items()})
    return Space(start, CHOICES, form, faults)


def every(space: Space) -> list[Look]:
    names = list(CHOICES)
    rows = product(*CHOICES.values())
    return [space.look(Candidate(knobs=dict(zip(names, row, strict=True)))) for row in rows]


def rows() -> tuple[Space, list[Look]]:
    space = made_up()
    return space, covering(space, sort_out(space).held)


def test_what_is_held_is_what_some_valid_candidate_keeps() -> None:
    space = made_up()
    expected = set().union(*(space.sets_in(look) for look in every(space)))
    assert expected == sort_out(space).held.keys()


def test_what_is_forbidden_is_in_no_valid_candidate() -> None:
    space = made_up()
    singles = [(name, choice) for name, choices in CHOICES.items() for choice in choices]
    pairs = [p for p in combinations(singles, 2) if p[0][0] != p[1][0]]
    asked = [*((one,) for one in singles), *pairs]
    valid = [set(look.drawn.knobs.items()) for look in every(space) if not look.faults]
    expected = {choices for choices in asked if not any(set(choices) <= v for v in valid)}
    found = sort_out(space)
    assert expected == set(found.forbidden)
    assert set(asked) == {*found.held, *found.merged, *found.forbidden}


def test_every_held_pair_is_in_an_accepted_row_and_there_are_few_rows() -> None:
    space, accepted = rows()
    assert not [row for row in accepted if row.faults]
    covered = set().union(*(space.sets_in(row) for row in accepted))
    assert sort_out(space).held.keys() == covered
    assert len(accepted) < len([look for look in every(space) if not look.faults]) / 3


def test_the_same_space_gives_the_same_rows() -> None:
    assert [row.drawn for row in rows()[1]] == [row.drawn for row in rows()[1]]


def test_every_rule_is_shown_by_its_smallest_faulty_assignment() -> None:
    found, _ = one_more(*rows())
    expected = {
        frozenset({("a", 2)}): ("two_is_never_right",),
        frozenset({("b", "y"), ("d", "p")}): ("y_and_p_exclude_each_other",),
        frozenset({("b", "y"), ("d", "q")}): ("y_and_p_exclude_each_other",),
        frozenset({("a", 1), ("c", True), ("e", 3)}): ("three_at_once",),
    }
    assert expected == {frozenset(fault.choices): fault.rules for fault in found}


def test_a_fault_comes_with_valid_candidates_that_differ_in_one_of_its_choices() -> None:
    space, accepted = rows()
    for fault in one_more(space, accepted)[0]:
        assert fault.without
        for other in fault.without:
            assert not space.look(fault.candidate.with_knobs(**other.knobs)).faults


def test_every_merge_is_shown_alone() -> None:
    _, found = one_more(*rows())
    told = {(m.choices[0], frozenset(m.choices[1:]), m.drops) for m in found}
    dropped = {(("e", n), frozenset({("c", False)}), True) for n in (1, 2, 3)}
    assert dropped | {(("d", "q"), frozenset(), False)} == told
