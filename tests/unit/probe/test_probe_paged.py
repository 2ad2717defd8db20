"""States of a paged optimizer count while the device has room for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.core.memory import Peaks
from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.probe.child.paged import paged_bytes
from autotune.probe.judge_run import judge_run
from autotune.probe.observed import Observed
from autotune.report.beside import beside_words
from autotune.testing import FakeMachine, FakeProber
from tests.support.facts import (
    GIB,
    MIB,
    candidate_of,
    lengths_of,
    measurement_of,
    spec_of,
    trial_of,
)


def seen(**changes: Any) -> Observed:
    plain: dict[str, Any] = {
        "failure": None,
        "measurement": None,
        "code": 0,
        "timed_out": False,
        "deadline_s": 60.0,
        "peak_rss_bytes": None,
        "host_total_bytes": 64 * GIB,
        "cap_bytes": int(0.95 * 24 * GIB),
        "device": "cuda:0",
        "budget_bytes": 24 * GIB,
    }
    return Observed(**{**plain, **changes})


PEAKS = Peaks(
    allocated_bytes=18 * GIB,
    reserved_bytes=20 * GIB,
    context_bytes=GIB // 2,
    paged_bytes=4 * GIB,
)


def test_states_on_a_device_larger_than_the_budget_count() -> None:
    measured = measurement_of(peaks=PEAKS)
    ending, needed = judge_run(measured, seen(device_total_bytes=80 * GIB))
    assert (Outcome.OOM_DEVICE, int(24.5 * GIB)) == (ending.outcome, needed)
    assert "it needs 24.50 GiB with 4.00 GiB of paged optimizer states" in ending.reason


def test_states_that_fit_the_budget_beside_the_rest_fit() -> None:
    small = PEAKS.model_copy(update={"paged_bytes": GIB})
    measured = measurement_of(peaks=small)
    assert Outcome.FITS is judge_run(measured, seen(device_total_bytes=80 * GIB))[0].outcome


@pytest.mark.parametrize(
    "room", [{"device_total_bytes": 24 * GIB}, {"device_free_bytes": 24 * GIB + 100 * MIB}]
)
def test_on_a_device_that_is_all_the_jobs_own_what_ran_is_the_truth(room: dict[str, int]) -> None:
    assert Outcome.FITS is judge_run(measurement_of(peaks=PEAKS), seen(**room))[0].outcome


def test_what_is_not_paged_is_held_to_the_cap_on_any_device() -> None:
    large = PEAKS.model_copy(update={"reserved_bytes": 23 * GIB})
    ending, _ = judge_run(measurement_of(peaks=large), seen(device_total_bytes=24 * GIB))
    assert Outcome.OOM_DEVICE is ending.outcome


def test_only_tensors_marked_as_paged_are_counted() -> None:
    paged = SimpleNamespace(is_paged=True, nbytes=400)
    plain = SimpleNamespace(nbytes=77)
    state = {1: {"state1": paged, "state2": paged, "step": 3}, 2: {"state1": plain}, 3: None}
    assert 800 == paged_bytes(SimpleNamespace(state=state))
    assert paged_bytes(SimpleNamespace(state={2: {"state1": plain}})) is None


def test_a_made_up_machine_pages_states_out_of_what_its_allocator_counts() -> None:
    machine = FakeMachine(optimizer_bytes=2 * GIB)
    lengths = lengths_of((10, 20, 30))
    prober = FakeProber(machine, lengths)
    peaks = {}
    for optim in ("adamw_8bit", "paged_adamw_8bit"):
        spec = spec_of(lengths, device="cuda:0", optim=optim)
        measured = prober.probe(spec, name=optim, deadline_s=60.0).measurement
        assert measured is not None
        peaks[optim] = measured.peaks
    paged, plain = peaks["paged_adamw_8bit"], peaks["adamw_8bit"]
    assert (2 * GIB, None) == (paged.paged_bytes, plain.paged_bytes)
    assert (paged.allocated_bytes or 0) + 2 * GIB == plain.allocated_bytes


def test_reports_say_what_of_a_peak_may_leave_the_device() -> None:
    told = PEAKS.model_copy(update={"absent": {"process": "0 bytes"}, "context_source": "as usual"})
    context, states = beside_words(trial_with(told))
    assert "The driver has no figure for the process (0 bytes)" in context
    assert "512.0 MiB for the CUDA context" in context
    assert states.startswith("4.00 GiB of the peak are paged optimizer states")
    assert context.endswith("for the CUDA context (as usual).")
    assert [] == beside_words(trial_with(Peaks(process_bytes=MIB)))


def trial_with(peaks: Peaks) -> TrialRecord:
    trial = trial_of(0, candidate_of())
    report = trial.report.model_copy(update={"measurement": measurement_of(peaks=peaks)})
    return trial.model_copy(update={"report": report})
