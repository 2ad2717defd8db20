"""Clauses of rules and merges are found in their source, and seen when a call goes through them."""

from __future__ import annotations

from autotune.knobs.placebos import Knobs
from autotune.knobs.rules import RULES
from tests.audit.audit import POLICIES
from tests.audit.clauses import clauses_of, gone_through
from tests.audit.reach import MERGES, OUT_OF_REACH


def rule(number: int) -> str | None:
    if number > 10:
        return "more than ten"
    if number == 5:
        return f"{number} is five"
    return None


def merge(knobs: Knobs) -> None:
    if knobs.get("a") == 1:
        knobs["a"] = 2
    knobs.without(
        "b",
        "there is none",
    )


def test_a_clause_is_a_reason_or_a_change() -> None:
    assert ["return 'more than ten'", "return f'{number} is five'"] == [
        clause.text for clause in clauses_of(rule)
    ]
    assert ["knobs['a'] = 2", "knobs.without('b', 'there is none')"] == [
        clause.text for clause in clauses_of(merge)
    ]


def test_a_call_goes_through_the_clauses_it_reaches() -> None:
    ten, five = clauses_of(rule)
    assert {ten} == gone_through([rule], lambda: rule(11))
    assert {five} == gone_through([rule], lambda: rule(5))
    assert set() == gone_through([rule], lambda: rule(1))


def test_a_merge_goes_through_the_clauses_that_change_something() -> None:
    first, second = clauses_of(merge)
    assert {first} == gone_through([merge], lambda: merge(Knobs({"a": 1})))
    assert {second} == gone_through([merge], lambda: merge(Knobs({"a": 3, "b": 8})))
    assert {first, second} == gone_through([merge], lambda: merge(Knobs({"a": 1, "b": 8})))
    assert set() == gone_through([merge], lambda: merge(Knobs({"a": 3})))


def test_what_the_audit_says_of_rules_is_of_rules_there_are() -> None:
    names = {rule.__name__ for rule in RULES}
    assert set() == (POLICIES.keys() | OUT_OF_REACH.keys()) - names
    assert set() == POLICIES.keys() & OUT_OF_REACH.keys()


def test_every_rule_and_merge_has_a_clause() -> None:
    assert [] == [f.__name__ for f in (*RULES, *MERGES) if not clauses_of(f)]
