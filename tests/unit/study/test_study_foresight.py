"""Predictions of a job's candidates, and what probes teach about them, on made-up traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.cuda_memory import usual_context_bytes
from autotune.core.job import Trainer
from autotune.core.measurement import Measurement, ProbeReport, Step
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.prediction import Fit, Prediction
from autotune.core.traced_step import TracedStep
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical
from autotune.predict.request import TraceRequest
from autotune.study.foresight import Foresight, trace_candidates
from tests.support.facts import GPU, MIB, budget_of, candidate_of, facts_of
from tests.support.work import FakeTracing, rates_of, traced_of


def foresight_of(facts: Facts, *candidates: Candidate, tracing: FakeTracing | None = None):  # type: ignore[no-untyped-def]
    foreseen, refused = trace_candidates(
        candidates,
        facts,
        "model",
        tracing or FakeTracing(),
        seconds=60.0,
        tick=lambda _: None,
        tell=lambda *_: None,
    )
    return Foresight(facts, rates_of(launch=1e-6), foreseen), refused


def small_and_large(facts: Facts) -> tuple[Candidate, Candidate]:
    small = candidate_of(per_device_train_batch_size=1, gradient_checkpointing="full")
    large = candidate_of(per_device_train_batch_size=8, gradient_checkpointing="none")
    return canonical(small, facts), canonical(large, facts)


def test_a_prediction_holds_the_traced_peak_and_sums_time_over_the_pass() -> None:
    facts = facts_of()
    small, large = small_and_large(facts)
    foresight, refused = foresight_of(facts, small, large)
    assert [] == refused
    one, eight = foresight.of(small), foresight.of(large)
    assert one is not None and eight is not None
    assert 900 * (2**14 + 2**12) + 100 * MIB == one.traced_bytes == one.peak_bytes
    assert one.low_bytes < one.peak_bytes < one.high_bytes
    assert (200, 25) == (one.micro_steps, eight.micro_steps)
    assert (8, 1) == (one.accumulation, eight.accumulation)
    per_update = one.micro_step_seconds * 8 + one.optimizer_seconds
    assert per_update * 25 == pytest.approx(one.pass_seconds)
    # The batch of 8 computes more padding: slower where overhead is small.
    assert eight.pass_seconds > one.pass_seconds


def test_on_a_gpu_the_context_is_charged_before_any_probe() -> None:
    facts = facts_of(device=GPU)
    small, _ = small_and_large(facts)
    prediction = foresight_of(facts, small)[0].of(small)
    assert prediction is not None
    assert usual_context_bytes(GPU.capability) == prediction.peak_bytes - prediction.traced_bytes


def test_candidates_that_differ_in_shapes_only_share_their_timed_traces() -> None:
    facts, tracing = facts_of(), FakeTracing()
    candidates = [
        canonical(candidate_of(per_device_train_batch_size=n, max_length=m), facts)
        for n in (1, 2, 4)
        for m in (600, 900)
    ]
    foresight_of(facts, *candidates, tracing=tracing)
    assert 6 + 4 == len(tracing.requests)


def test_a_candidate_that_cannot_be_traced_is_named_with_its_reason() -> None:
    facts = facts_of()
    small, large = small_and_large(facts)

    def refuse(request: TraceRequest) -> bool:
        return request.options.get("gradient_checkpointing") is False

    foresight, refused = foresight_of(facts, small, large, tracing=FakeTracing(refuse))
    assert [(large, "made up")] == [(one.candidate, one.reason) for one in refused]
    assert foresight.of(large) is None and foresight.of(small) is not None


def report(
    outcome: Outcome = Outcome.FITS,
    *,
    peak: int = 0,
    seconds: float = 0.0,
    needed: int | None = None,
) -> ProbeReport:
    step = Step(
        seconds=seconds,
        fetch_seconds=0.0,
        rows=1,
        width=900,
        sequences=1,
        useful_tokens=900,
        label_tokens=900,
        longest=900,
        loss=1.0,
    )
    measured = Measurement(
        peaks=Peaks(allocated_bytes=peak),
        memory_steps=(step,),
        timed_steps=(step,) * 8,
        optimizer_seconds=(0.1,),
    )
    fits = outcome is Outcome.FITS
    return ProbeReport(
        ending=Ending(outcome=outcome, phase=Phase.STEADY),
        measurement=measured if fits else None,
        needed_bytes=needed,
    )


def test_a_finished_probe_corrects_the_others_and_narrows_the_band() -> None:
    facts = facts_of()
    small, large = small_and_large(facts)
    foresight, _ = foresight_of(facts, small, large)
    before = foresight.of(large)
    small_before = foresight.of(small)
    assert before is not None and small_before is not None
    twice = 2.0 * sum(small_before.parts_seconds.values()) / small_before.micro_steps
    foresight.learn(small, report(peak=int(1.1 * small_before.traced_bytes), seconds=10 * twice))
    after = foresight.of(large)
    assert after is not None
    assert after.micro_step_seconds > 1.5 * before.micro_step_seconds
    assert after.peak_bytes > 1.03 * before.peak_bytes
    assert after.time_band_ratio < before.time_band_ratio
    assert 1 == after.calibrated_by


def test_a_candidate_that_ran_out_of_memory_raises_the_predictions() -> None:
    facts = facts_of()
    small, large = small_and_large(facts)
    foresight, _ = foresight_of(facts, small, large)
    before = foresight.of(large)
    assert before is not None
    needed = int(1.3 * before.peak_bytes)
    foresight.learn(large, report(Outcome.OOM_HOST, needed=needed))
    after = foresight.of(large)
    assert after is not None and after.peak_bytes > 1.1 * before.peak_bytes


def test_a_probe_of_an_untraced_candidate_teaches_nothing() -> None:
    facts = facts_of()
    small, large = small_and_large(facts)
    foresight, _ = foresight_of(facts, small)
    before = foresight.of(small)
    foresight.learn(large, report(peak=10 * MIB, seconds=1.0))
    assert before == foresight.of(small)


def test_what_surely_exceeds_the_budget_is_hopeless_and_what_may_fit_is_not() -> None:
    facts = facts_of()
    small, _ = small_and_large(facts)
    prediction = foresight_of(facts, small)[0].of(small)
    assert prediction is not None
    peak = prediction.peak_bytes
    assert Fit.FITS is prediction.fit(budget_of(2 * peak))
    assert Fit.UNSURE is prediction.fit(budget_of(peak))
    assert Fit.HOPELESS is prediction.fit(budget_of(peak // 2))


def test_the_pass_over_the_reference_counts_in_time_and_peak_shared_by_the_epochs() -> None:
    def predicted(options: dict[str, Any], answer: Any = traced_of) -> Prediction:
        facts = facts_of(trainer=Trainer.DPO, options=options)
        sides = replace(facts.lengths, chosen=facts.lengths.tokens, rejected=facts.lengths.tokens)
        facts = replace(facts, lengths=sides)
        precomputes = bool(options.get("precompute_ref_log_probs"))
        candidate = canonical(candidate_of(precompute_ref_log_probs=precomputes), facts)
        foresight, _ = foresight_of(facts, candidate, tracing=FakeTracing(answer=answer))
        found = foresight.of(candidate)
        assert found is not None
        return found

    plain = predicted({})
    once = predicted({"precompute_ref_log_probs": True})
    assert 0.0 == plain.precompute_seconds < once.precompute_seconds
    assert pytest.approx(once.pass_seconds + once.precompute_seconds) == once.score_seconds
    twice = predicted({"precompute_ref_log_probs": True, "num_train_epochs": 2})
    assert pytest.approx(twice.pass_seconds + twice.precompute_seconds / 2) == twice.score_seconds

    def high(request: TraceRequest) -> TracedStep:
        step = traced_of(request)
        more = {"phase": "precompute", "peak_bytes": 2 * step.peak_bytes}
        return step.model_copy(update=more) if request.precompute else step

    peak = predicted({"precompute_ref_log_probs": True}, high)
    assert "precompute" == peak.phase and peak.peak_bytes > once.peak_bytes
