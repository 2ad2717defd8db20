"""What a prober promises, held by the shipped fake and by real processes.

Those are forked from a warm server; what starts a process is the same to everything but itself
(test_launchers.py), so a cold one is only held against a warm one here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.core.measurement import Measurement, ProbeReport
from autotune.core.outcome import Outcome
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical, settings
from autotune.probe.cold import ColdLauncher
from autotune.probe.prober import Prober
from autotune.probe.protocol import GuardSide, GuardSpec, ProbeSpec
from autotune.probe.runner import Runner
from autotune.study.plan import probe_spec
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_prober import FakeProber
from autotune.testing.fake_script import Hangs
from tests.support.facts import GIB, MIB, budget_of, candidate_of, facts_of
from tests.support.rows import LATE_LONG_ROW, write_job
from tests.support.warm import Shared

#: A tiny model on the CPU; one micro-batch holds two rows.
OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": False,
    "learning_rate": 1e-4,
}
MAX_LENGTH = 256
DEADLINE_S = 300.0


@dataclass
class Setup:
    """One implementation, and the requests it gets."""

    prober: Prober
    facts: Facts
    model_dir: str
    rows_dir: str

    def spec(self, **changes: Any) -> ProbeSpec:
        knobs = {"per_device_train_batch_size": 2, "max_length": MAX_LENGTH}
        candidate = canonical(candidate_of(**knobs), self.facts)
        made = settings(candidate, self.facts)
        spec = probe_spec(
            candidate, made, self.facts, self.model_dir, self.rows_dir, budget_of(8 * GIB)
        )
        options = {**spec.options, **changes.pop("options", {})}
        return spec.model_copy(update={"options": options, **changes})

    def guard(self, **candidate: Any) -> GuardSpec:
        """Compare the default with the same in other micro-batches, or with these options."""
        spec = self.spec()
        changed = {"per_device_train_batch_size": 1, "gradient_checkpointing": False, **candidate}
        return GuardSpec(
            trainer=spec.trainer,
            model_dir=self.model_dir,
            weights="random",
            device="cpu",
            rows_dir=self.rows_dir,
            rows=(0, 1, 29, 2),
            reference=GuardSide(options=spec.options),
            candidate=GuardSide(options={**spec.options, **changed}),
        )

    def probe(self, spec: ProbeSpec, name: str, deadline_s: float = DEADLINE_S) -> ProbeReport:
        return self.prober.probe(spec, name=name, deadline_s=deadline_s)


Opened = Callable[[Path, Any], Iterator[tuple[Prober, str, str]]]


def fake(folder: Path, request: Any) -> Iterator[tuple[Prober, str, str]]:
    facts = facts_of(LATE_LONG_ROW, options=OPTIONS)
    machine = FakeMachine(weights_bytes=8 * MIB, load_s=0.5)
    yield FakeProber(machine, facts.lengths), "model", "rows"


def real(folder: Path, request: Any) -> Iterator[tuple[Prober, str, str]]:
    with Runner(request.getfixturevalue("shared"), folder) as runner:
        yield runner, *write_job(folder, LATE_LONG_ROW)


@pytest.fixture(
    scope="module",
    params=[fake, pytest.param(real, marks=pytest.mark.integration)],
    ids=lambda opened: opened.__name__,
)
def setup(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    opened: Opened = request.param
    folder = tmp_path_factory.mktemp(opened.__name__)
    for prober, model_dir, rows_dir in opened(folder, request):
        yield setup_of(prober, model_dir, rows_dir)


def setup_of(prober: Prober, model_dir: str, rows_dir: str) -> Setup:
    facts = facts_of(LATE_LONG_ROW, options=OPTIONS, min_retention_ratio=0.0)
    return Setup(prober, facts, model_dir, rows_dir)


@pytest.fixture(scope="module")
def twice(setup: Setup) -> tuple[ProbeReport, ProbeReport]:
    """The same request, two times."""
    return setup.probe(setup.spec(), "0000"), setup.probe(setup.spec(), "0001")


@pytest.fixture(scope="module")
def measured(twice: tuple[ProbeReport, ProbeReport]) -> Measurement:
    report = twice[0]
    assert report.ending.outcome is Outcome.FITS, report.ending
    assert report.measurement is not None
    return report.measurement


def test_a_fitting_candidate_is_reported_whole(twice: tuple[ProbeReport, ProbeReport]) -> None:
    report = twice[0]
    assert report.ending.reason == ""
    assert report.needed_bytes is None
    assert report.wall_seconds > 0.0
    assert report.log_file is not None
    assert Path(report.log_file).name == "0000.txt"


def test_memory_is_measured_over_two_whole_updates(measured: Measurement) -> None:
    # Two micro-steps of every update stand for the four of the job.
    assert len(measured.memory_steps) % 4 == 0
    assert len(measured.memory_steps) >= 4


def test_speed_is_measured_over_eight_steps_and_sixty_four_rows(measured: Measurement) -> None:
    assert len(measured.timed_steps) >= 8
    assert sum(s.rows for s in measured.timed_steps) >= 64
    assert len(measured.optimizer_seconds) == len(measured.timed_steps) // 2
    assert all(s.seconds > 0.0 for s in measured.timed_steps)
    assert measured.warmup_steps


def test_the_memory_batch_is_as_wide_as_the_longest_row_after_the_cut(
    measured: Measurement,
) -> None:
    # BC01: the first batches that happen to come are 3 tokens wide.
    assert {MAX_LENGTH} == {s.width for s in measured.memory_steps}
    assert max(measured.worst_tokens) == MAX_LENGTH
    assert 29 in measured.worst_rows, "the row is named by its place in the data set"


def test_the_peak_of_every_step_of_the_memory_phase_is_kept(measured: Measurement) -> None:
    # BC43
    peaks = [step.peak_bytes for step in measured.memory_steps]
    assert all(peak is not None and peak > 0 for peak in peaks)
    assert max(peak or 0 for peak in peaks) <= (measured.peaks.deciding_bytes or 0)
    assert {None} == {step.peak_bytes for step in measured.timed_steps}, "no meter beside a clock"


def test_the_warm_up_begins_with_the_largest_shape(measured: Measurement) -> None:
    warmup = [step.padded_tokens for step in measured.warmup_steps]
    assert max(step.padded_tokens for step in measured.timed_steps) == warmup[0]
    assert 2 == len(warmup), "one whole update"


def test_the_longest_row_decides_however_many_steps_are_timed(setup: Setup) -> None:
    report = setup.probe(setup.spec(memory_only=True), "memory-only")
    assert report.measurement is not None
    assert report.measurement.timed_steps == ()
    assert {MAX_LENGTH} == {s.width for s in report.measurement.memory_steps}


def test_realised_shapes_are_recorded(measured: Measurement) -> None:
    assert {2} == {s.rows for s in measured.timed_steps}
    widths = {s.width for s in measured.timed_steps}
    assert {3, MAX_LENGTH} == widths
    for step in (*measured.memory_steps, *measured.timed_steps):
        assert step.useful_tokens <= step.padded_tokens
        assert 0 < step.label_tokens < step.useful_tokens, "the first token predicts nothing"
        assert step.loss is not None
    assert measured.effective["max_length"] == MAX_LENGTH
    assert measured.effective["per_device_train_batch_size"] == 2


def test_peaks_are_there_or_absent_with_a_reason(measured: Measurement) -> None:
    peaks = measured.peaks
    for name in ("allocated", "reserved", "process", "device_used"):
        value = getattr(peaks, f"{name}_bytes")
        assert (value is None) == (name in peaks.absent), name
    assert peaks.process_bytes is not None
    assert peaks.process_bytes > 0
    assert measured.load_peaks is not None


def test_the_loss_and_the_gradient_are_real(measured: Measurement) -> None:
    assert measured.grad_norms
    assert all(norm is not None and norm > 0.0 for norm in measured.grad_norms)


def test_equal_seeds_make_equal_choices_of_rows(twice: tuple[ProbeReport, ProbeReport]) -> None:
    one, other = (r.measurement for r in twice)
    assert one is not None
    assert other is not None
    assert one.worst_rows == other.worst_rows

    def shapes(measurement: Measurement) -> list[tuple[int, ...]]:
        steps = (*measurement.memory_steps, *measurement.timed_steps)
        return [(s.rows, s.width, s.useful_tokens, s.label_tokens) for s in steps]

    assert shapes(one) == shapes(other)


def test_the_allocated_peak_repeats_to_a_thousandth(
    twice: tuple[ProbeReport, ProbeReport],
) -> None:
    one, other = (r.measurement.peaks.allocated_bytes for r in twice if r.measurement is not None)
    assert one is not None
    assert other is not None
    assert one == pytest.approx(other, rel=1e-3)


def test_a_cap_below_the_need_ends_as_memory(setup: Setup) -> None:
    report = setup.probe(setup.spec(cap_bytes=3 * MIB), "capped")
    assert report.ending.outcome.is_memory, report.ending
    assert report.needed_bytes is not None
    assert report.needed_bytes >= 3 * MIB
    assert report.measurement is None or not report.measurement.timed_steps
    assert report.ending.reason


def test_a_refused_config_is_invalid_in_trls_own_words(setup: Setup) -> None:
    # BC40
    refused = setup.spec(options={"padding_free": True, "max_length": MAX_LENGTH})
    report = setup.probe(refused, "refused")
    assert report.ending.outcome is Outcome.INVALID
    assert "`max_length` is not enforced" in report.ending.reason
    assert report.measurement is None


def test_a_deadline_ends_the_probe_and_leaves_no_process(setup: Setup) -> None:
    before = descendants()
    report = setup.probe(setup.spec(), "late", deadline_s=0.2)
    assert report.ending.outcome is Outcome.TIMEOUT
    assert report.measurement is None
    assert descendants() <= before


def descendants() -> set[int]:
    return {
        p.pid
        for p in psutil.Process().children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE
    }


def test_two_candidates_that_train_the_same_are_equivalent(setup: Setup) -> None:
    report = setup.prober.compare(setup.guard(), name="guard", deadline_s=DEADLINE_S)
    assert report.ending.outcome is Outcome.FITS, report.ending
    assert report.measurement is None
    compared = report.compared
    assert compared is not None
    assert (2, 4) == (compared.reference.micro_steps, compared.candidate.micro_steps)
    assert compared.reference.label_tokens == compared.candidate.label_tokens > 0
    assert compared.reference.precision == "fp32"
    assert compared.reference.grad_norm > 0.0


def test_a_comparison_that_hangs_is_ended_and_says_nothing(setup: Setup) -> None:
    if isinstance(setup.prober, FakeProber):
        setup.prober._guards = lambda _, __: Hangs()
    report = setup.prober.compare(setup.guard(), name="guard-late", deadline_s=0.2)
    assert report.ending.outcome is Outcome.TIMEOUT
    assert report.compared is None


def test_progress_is_told_while_it_runs(setup: Setup) -> None:
    told: list[float] = []
    setup.prober.probe(setup.spec(), name="told", deadline_s=DEADLINE_S, tick=told.append)
    assert told
    assert told == sorted(told)


def test_a_failed_probe_does_not_disturb_the_next(setup: Setup) -> None:
    setup.probe(setup.spec(cap_bytes=3 * MIB), "capped-again")
    assert setup.probe(setup.spec(), "after").ending.outcome is Outcome.FITS


@pytest.mark.integration
def test_a_cold_process_measures_what_a_warm_one_does(shared: Shared, tmp_path: Path) -> None:
    job = write_job(tmp_path, LATE_LONG_ROW)
    with Runner(ColdLauncher({"OMP_NUM_THREADS": "1"}), tmp_path / "cold") as runner:
        cold = setup_of(runner, *job)
        report = cold.probe(cold.spec(memory_only=True), "0000")
        capped = cold.probe(cold.spec(cap_bytes=3 * MIB), "0001")
    warm = setup_of(Runner(shared, tmp_path / "warm"), *job)
    peaks = [
        r.measurement.peaks.allocated_bytes
        for r in (report, warm.probe(warm.spec(memory_only=True), "0000"))
        if r.measurement is not None
    ]
    assert peaks[0] == pytest.approx(peaks[1], rel=1e-3)
    assert capped.ending.outcome.is_memory, capped.ending
