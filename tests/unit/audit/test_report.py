"""The audit's report: totals, what is not tried, and every disagreement in full."""

from __future__ import annotations

from autotune.core.job import Trainer
from tests.audit.clauses import Clause
from tests.audit.job import AuditJob
from tests.audit.plan import Pairs
from tests.audit.reach import OUT_OF_REACH
from tests.audit.report import Audited, rendered
from tests.audit.verdict import Tried

JOB = AuditJob("sft", Trainer.SFT, {"bf16": False})
PAIRS = Pairs(held=40, covered=39, merged=5, forbidden=6)
LONG = "ValueError: " + "no " * 200


def report(*tried: Tried) -> str:
    return rendered([Audited(JOB, PAIRS, tried)], [])


def test_totals_count_claims_disagreements_and_pairs() -> None:
    text = report(
        Tried("accepted", "", (("peft", "lora"),), True, "trains"),
        Tried("rejected", "a_rule", (("max_length", None),), False, "trains"),
    )
    assert "| sft | 2 | 1 | 1 | 0 | 0 | 0 | 1 | 39 of 40 | 5 | 6 |" in text
    assert "| **all** | 2 | 1 | 1 | 0 | 0 | 0 | 1 |" in text


def test_a_disagreement_is_told_in_full_and_a_row_is_not() -> None:
    text = report(Tried("rejected", "a_rule", (("max_length", None),), False, LONG))
    assert f"- sft: rejected (a rule): max_length null: {LONG}" in text
    assert "| rejected | a rule | max_length null | ValueError: no" in text
    assert "None." in report()


def test_what_no_combination_exercises_comes_with_its_reason() -> None:
    missing = Clause("a_rule", "return 'why'", (1, 1))
    text = rendered([], [missing])
    assert "- a rule: **no reason** for `return 'why'`" in text
    assert all(why in text for why in OUT_OF_REACH.values())
