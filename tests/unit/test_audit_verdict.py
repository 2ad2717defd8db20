"""What the audit calls agreement, on made-up probes."""

from __future__ import annotations

from autotune.core.measurement import Measurement, ProbeReport
from autotune.core.memory import Peaks
from autotune.core.outcome import Outcome
from tests.audit.verdict import accepted, merged, rejected
from tests.support.facts import candidate_of, ending_of, measurement_of, step_of

CANDIDATE = candidate_of(padding_free=True)


def probe(outcome: Outcome = Outcome.FITS, **measured: object) -> ProbeReport:
    found: Measurement | None = measurement_of(**measured) if outcome is Outcome.FITS else None
    return ProbeReport(ending=ending_of(outcome), measurement=found)


def test_an_accepted_combination_must_train() -> None:
    assert accepted(CANDIDATE, probe()).agrees
    assert not accepted(CANDIDATE, probe(Outcome.INVALID)).agrees


def test_a_rejected_combination_that_raises_agrees() -> None:
    assert rejected(CANDIDATE, "a_rule", probe(Outcome.INVALID), None).agrees


def test_a_rejected_combination_that_is_warned_of_agrees() -> None:
    report = probe(warnings=("UserWarning: padding_free is ignored",))
    assert "warns: UserWarning: padding_free is ignored" == (
        rejected(CANDIDATE, "a_rule", report, None).found
    )


def test_a_rejected_combination_that_changes_nothing_agrees() -> None:
    assert rejected(CANDIDATE, "a_rule", probe(), probe()).agrees
    wider = probe(memory_steps=(step_of(width=65),) * 4)
    assert not rejected(CANDIDATE, "a_rule", wider, probe()).agrees
    assert not rejected(CANDIDATE, "a_rule", probe(), None).agrees


def test_merged_combinations_must_need_the_same_memory() -> None:
    larger = probe(peaks=Peaks(allocated_bytes=91 * 2**20))
    assert merged(CANDIDATE, probe(), probe()).agrees
    assert not merged(CANDIDATE, larger, probe()).agrees
