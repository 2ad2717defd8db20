"""From timed steps to the cost of a whole pass, and the rows a candidate is measured on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.core.candidate import Candidate
from autotune.core.job import Trainer
from autotune.core.result import Estimate
from autotune.knobs.facts import Facts
from autotune.knobs.passes import pass_shapes
from autotune.knobs.translate import canonical, settings
from autotune.study.objective import estimate
from autotune.study.plan import probe_spec, row_plan
from autotune.testing.fake_machine import FakeMachine, Shape
from autotune.testing.fake_prober import FakeProber
from tests.support.facts import (
    GIB,
    GPU,
    budget_of,
    candidate_of,
    facts_of,
    measurement_of,
    spec_of,
)

MACHINE = FakeMachine(step_s=0.003, token_s=1e-4, token_width_s=1e-8, optimizer_s=0.02)


def estimated(candidate: Candidate, facts: Facts, machine: FakeMachine = MACHINE) -> Estimate:
    candidate = canonical(candidate, facts)
    made = settings(candidate, facts)
    spec = probe_spec(candidate, made, facts, "model", "rows", budget_of(200 * GIB))
    report = FakeProber(machine, facts.lengths).probe(spec, name="x", deadline_s=1e9)
    assert report.measurement is not None, report.ending
    found = estimate(candidate, made, report.measurement, facts)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"padding_free": True},
        {"packing": "bfd", "per_device_train_batch_size": 1},
        {"per_device_train_batch_size": 2, "gradient_checkpointing": "none"},
    ],
)
def test_the_pass_takes_what_its_shapes_take(knobs: dict[str, Any]) -> None:
    facts = facts_of(device=GPU)
    candidate = canonical(candidate_of(**knobs), facts)
    made = settings(candidate, facts)
    shapes = pass_shapes(candidate, made, facts)
    spec = spec_of(facts.lengths, **made.options)
    true = sum(
        MACHINE.step_seconds(Shape(int(r), int(w)), spec)
        for r, w in zip(shapes.tensor_rows, shapes.width, strict=True)
    )
    updates = -(-len(shapes) // made.accumulation)
    found = estimated(candidate, facts)
    assert true + updates * 0.02 == pytest.approx(found.pass_seconds, rel=1e-6)
    assert updates == found.updates_per_pass


def test_one_disturbed_step_does_not_become_a_score() -> None:
    # BC49, BC50
    facts = facts_of(device=GPU)
    candidate = canonical(candidate_of(), facts)
    made = settings(candidate, facts)
    spec = probe_spec(candidate, made, facts, "model", "rows", budget_of(200 * GIB))
    measured = FakeProber(MACHINE, facts.lengths).probe(spec, name="x", deadline_s=1e9).measurement
    assert measured is not None
    steps = list(measured.timed_steps)
    steps[2] = steps[2].model_copy(update={"seconds": steps[2].seconds * 40})
    slow = measured.model_copy(update={"timed_steps": tuple(steps)})
    calm, disturbed = (estimate(candidate, made, m, facts) for m in (measured, slow))
    assert calm is not None
    assert disturbed is not None
    assert calm.score_seconds == pytest.approx(disturbed.score_seconds, rel=0.02)


def test_padding_counts_as_computed_and_not_as_useful() -> None:
    # BC50: rows of 1 and 200 tokens alternating, a third of the tokens trained.
    rows = [1, 200] * 40
    labels = [1, 67] * 40
    facts = facts_of(rows, labels=labels, device=GPU, options={"per_device_train_batch_size": 2})
    padded = estimated(candidate_of(per_device_train_batch_size=2), facts)
    free = estimated(candidate_of(per_device_train_batch_size=2, padding_free=True), facts)
    assert padded.padding_ratio > 0.2
    assert free.padding_ratio == 0.0
    assert padded.useful_tokens_per_s < padded.padded_tokens_per_s
    assert free.useful_tokens_per_s == pytest.approx(free.padded_tokens_per_s)
    assert padded.label_tokens_per_s == pytest.approx(padded.useful_tokens_per_s * 2720 / 8040)
    assert (free.pass_seconds < padded.pass_seconds) == (
        free.useful_tokens_per_s > padded.useful_tokens_per_s
    )


def test_a_shorter_length_pays_for_the_tokens_it_drops() -> None:
    # BC06: a shorter max_length always looks faster.
    facts = facts_of([512] * 64, device=GPU, min_retention_ratio=0.1)
    half = estimated(candidate_of(max_length=256), facts, FakeMachine(step_s=0.0, optimizer_s=0.0))
    whole = estimated(candidate_of(max_length=512), facts, FakeMachine(step_s=0.0, optimizer_s=0.0))
    assert half.pass_seconds == pytest.approx(whole.pass_seconds / 2)
    assert half.score_seconds == pytest.approx(whole.score_seconds)
    assert half.retention_ratio == 0.5
    assert half.rows_cut == 64
    assert half.tokens_dropped_ratio == 0.5


def test_rows_that_the_cut_leaves_without_a_label_are_counted_as_dropped() -> None:
    rows = {"tokens": [512, 512, 100, 100, 100], "labels": [99, 99, 99, 99, 99]}
    facts = facts_of(**rows, device=GPU, min_retention_ratio=0.0)
    found = estimated(candidate_of(max_length=400), facts)
    assert (2, 2) == (found.rows_cut, found.rows_dropped), "their first label is number 414"
    assert 0 == estimated(candidate_of(max_length=512), facts).rows_dropped


def test_splitting_cuts_no_row() -> None:
    facts = facts_of([300] * 60, device=GPU, options={"per_device_train_batch_size": 2})
    split = estimated(
        candidate_of(packing="bfd_split", max_length=256, per_device_train_batch_size=2), facts
    )
    assert split.rows_cut == 0
    assert split.tokens_dropped_ratio == 0.0
    cut = estimated(
        candidate_of(packing="bfd", max_length=256, per_device_train_batch_size=2), facts
    )
    assert cut.rows_cut == 60


def test_tokens_beyond_the_reference_earn_nothing() -> None:
    facts = facts_of(
        [512] * 64, device=GPU, options={"max_length": 256}, allow=frozenset({"longer"})
    )
    longer = estimated(candidate_of(max_length=512), facts)
    own = estimated(candidate_of(max_length=256), facts)
    assert longer.retention_ratio == own.retention_ratio == 1.0
    assert longer.score_seconds > own.score_seconds


def test_what_is_computed_once_before_training_is_stated_apart_and_shared_by_all_passes() -> None:
    # BC08
    rows = [100] * 128
    once = {"precompute_ref_log_probs": True}
    machine = FakeMachine(step_s=0.0, token_s=3e-4, optimizer_s=0.0)

    def of_epochs(**options: Any) -> Estimate:
        facts = facts_of(
            rows, labels=[50] * 128, device=GPU, trainer=Trainer.KTO, options={**once, **options}
        )
        return estimated(candidate_of(**once), facts, machine)

    one, four = of_epochs(num_train_epochs=1), of_epochs(num_train_epochs=4)
    steps = of_epochs(max_steps=4 * one.updates_per_pass)
    assert 12_800 * 1e-4 == pytest.approx(one.precompute_seconds), "a forward of every token"
    assert one.pass_seconds == pytest.approx(four.pass_seconds)
    assert one.pass_seconds + one.precompute_seconds == pytest.approx(one.score_seconds)
    assert four.pass_seconds + four.precompute_seconds / 4 == pytest.approx(four.score_seconds)
    assert four.score_seconds == pytest.approx(steps.score_seconds)
    with_reference = facts_of(rows, labels=[50] * 128, device=GPU, trainer=Trainer.KTO)
    assert 0.0 == estimated(candidate_of(), with_reference, machine).precompute_seconds


def test_without_timed_steps_there_is_no_estimate() -> None:
    facts = facts_of()
    candidate = canonical(candidate_of(), facts)
    measured = measurement_of(timed_steps=(), optimizer_seconds=())
    assert estimate(candidate, settings(candidate, facts), measured, facts) is None


def test_the_rows_of_a_probe_depend_on_data_and_seed_alone() -> None:
    facts = facts_of()
    small = row_plan(candidate_of(per_device_train_batch_size=1), facts)
    large = row_plan(candidate_of(per_device_train_batch_size=8), facts)
    assert small.paired == large.paired
    assert len(small.paired) == 64
    assert small.worst[0] == large.worst[0][:1] == (199,), "the longest row is the last (BC01)"
    other = row_plan(candidate_of(), facts_of(seed=1))
    assert other.paired != large.paired
    assert other.worst == large.worst, "a seed never changes which rows are worst"


def test_a_packed_probe_gets_a_block_to_pack() -> None:
    plan = row_plan(candidate_of(packing="bfd"), facts_of())
    assert plan.worst == plan.paired == ()
    assert list(np.sort(plan.block)) == list(range(200))


def test_a_request_holds_the_candidates_options_over_the_users() -> None:
    facts = facts_of(device=GPU, options={"learning_rate": 1e-4, "gradient_checkpointing": True})
    candidate = canonical(candidate_of(gradient_checkpointing="none"), facts)
    spec = probe_spec(
        candidate, settings(candidate, facts), facts, "model", "rows", budget_of(GIB, 0.05)
    )
    assert spec.options["learning_rate"] == 1e-4
    assert spec.options["gradient_checkpointing"] is False
    assert spec.cap_bytes == int(GIB * 0.95)
    assert spec.device_total_bytes == GPU.total_bytes


def test_a_pass_is_counted_over_the_rows_that_are_trained_on() -> None:
    whole = facts_of(device=GPU)
    half = replace(whole, lengths=replace(whole.lengths, held_out=len(whole.lengths) // 2))
    all_rows, some = (estimated(candidate_of(), facts) for facts in (whole, half))
    assert math.ceil(all_rows.updates_per_pass / 2) == some.updates_per_pass
    assert 0.5 == pytest.approx(some.pass_seconds / all_rows.pass_seconds, rel=0.1)
    for rate in ("useful_tokens_per_s", "padded_tokens_per_s", "label_tokens_per_s"):
        assert getattr(all_rows, rate) == pytest.approx(getattr(some, rate), rel=0.1)
    assert all_rows.tokens_dropped_ratio == pytest.approx(some.tokens_dropped_ratio, abs=0.02)
