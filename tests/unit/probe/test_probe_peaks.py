"""Peaks of every stage decide, not those of the worst batch alone; and none may still grow."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.measurement import Measurement
from autotune.core.memory import Peaks, highest
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.probe.classify import classify
from autotune.probe.observed import Observed
from tests.support.facts import GIB, MIB, measurement_of


def judged(measurement: Measurement, **seen: Any) -> Ending:
    plain: dict[str, Any] = {
        "failure": None,
        "measurement": measurement,
        "code": 0,
        "timed_out": False,
        "deadline_s": 60.0,
        "peak_rss_bytes": None,
        "host_total_bytes": 64 * GIB,
        "cap_bytes": 9 * GIB,
        "device": "cuda:0",
    }
    return classify(Observed(**{**plain, **seen}))[0]


def of_stages(**reserved: float) -> Measurement:
    """Return a measurement on a GPU, reserved GiB by stage."""
    stages = {
        name: Peaks(allocated_bytes=4 * GIB, reserved_bytes=int(gib * GIB), allocation_retries=0)
        for name, gib in reserved.items()
    }
    peaks = max(stages.values(), key=lambda p: p.reserved_bytes or 0)
    return measurement_of(peaks=peaks, stage_peaks=stages)


@pytest.mark.parametrize(
    ("stage", "phase", "words"),
    [
        ("timed", Phase.STEADY, "over batches of mixed lengths"),
        ("mixed", Phase.STEADY, "over batches of mixed lengths"),
        ("save", Phase.SAVE, "while saving a checkpoint"),
        ("eval", Phase.EVAL, "in evaluation"),
    ],
)
def test_the_stage_that_needs_most_decides_and_is_named(
    stage: str, phase: Phase, words: str
) -> None:
    measured = of_stages(load=2.0, memory=8.0, **{stage: 10.0})
    assert stage == measured.peak_stage
    ending = judged(measured)
    assert (Outcome.OOM_DEVICE, phase) == (ending.outcome, ending.phase)
    assert f"10.00 GiB {words}" in ending.reason
    assert Outcome.FITS is judged(measured, cap_bytes=11 * GIB).outcome


def test_of_equal_stages_the_first_is_named_since_a_cache_is_kept() -> None:
    assert "memory" == of_stages(load=2.0, memory=8.0, timed=8.0).peak_stage
    assert measurement_of().peak_stage is None, "documents that did not keep it"
    assert "" == measurement_of().peak_where


def test_peaks_of_stages_are_put_together_number_by_number() -> None:
    watched = Peaks(allocated_bytes=5, absent={"process": "not looked at", "reserved": "CUDA"})
    process = Peaks(process_bytes=9, absent={"allocated": "apart", "reserved": "CUDA"})
    both = highest(watched, process)
    assert (5, 9, None) == (both.allocated_bytes, both.process_bytes, both.reserved_bytes)
    assert {"reserved": "CUDA"} == both.absent
    retries = highest(Peaks(allocation_retries=None), Peaks(allocation_retries=2))
    assert 2 == retries.allocation_retries


def on_cpu(**allocated: int) -> Measurement:
    stages = {name: Peaks(allocated_bytes=size * MIB) for name, size in allocated.items()}
    return measurement_of(stage_peaks=stages)


def test_an_evaluation_beyond_the_cap_is_seen_where_it_runs_without_it() -> None:
    ending = judged(on_cpu(mixed=90, eval=130), device="cpu", cap_bytes=100 * MIB)
    assert (Outcome.OOM_HOST, Phase.EVAL) == (ending.outcome, ending.phase)
    assert "in evaluation, more than the cap" in ending.reason
    fits = judged(on_cpu(mixed=90, eval=95), device="cpu", cap_bytes=100 * MIB)
    assert Outcome.FITS is fits.outcome
    # Weights that are mapped from a file are live and not charged: training showed that it fits.
    mapped = judged(on_cpu(mixed=140, eval=135), device="cpu", cap_bytes=100 * MIB)
    assert Outcome.FITS is mapped.outcome


def verified(live: list[int], reserved: list[int]) -> Ending:
    measured = measurement_of(
        update_peaks_bytes=tuple(n * MIB for n in live),
        update_reserved_bytes=tuple(n * MIB for n in reserved),
    )
    return judged(measured, cap_bytes=None)


def test_mixed_lengths_do_not_look_like_growth() -> None:
    cycle = [4000, 2500, 3900, 2000, 3950] * 4
    assert Outcome.FITS is verified(cycle, [5000] * 20).outcome
    leaks = [size + 3 * at for at, size in enumerate(cycle)]
    ending = verified(leaks, [5000] * 20)
    assert "memory is still growing after 20 updates" in ending.reason


def test_what_the_allocator_reserves_may_not_grow_either() -> None:
    steady = [4000] * 20
    ending = verified(steady, [5000 + 30 * at for at in range(20)])
    assert Outcome.INVALID is ending.outcome
    assert "what torch's allocator reserves is still growing" in ending.reason
    one_segment_more = [100] * 15 + [120] * 5
    assert Outcome.FITS is verified(steady, one_segment_more).outcome
    assert Outcome.FITS is verified(steady, [4000, 5000, *[5200] * 18]).outcome, "it settled"


@pytest.mark.parametrize(
    ("measured", "outcome"),
    [
        ({"updates": 40, "skipped_updates": 3}, Outcome.FITS),
        ({"updates": 1, "skipped_updates": 21}, Outcome.NON_FINITE),
        ({"updates": 0, "skipped_updates": 22, "grad_norms": ()}, Outcome.NON_FINITE),
        ({"updates": 5, "skipped_updates": 9, "optimizer_seconds": ()}, Outcome.NON_FINITE),
        ({"updates": 40, "skipped_updates": 3, "grad_norms": (1.0, None)}, Outcome.NON_FINITE),
    ],
)
def test_skipped_updates_are_no_failure_unless_the_scale_never_settles(
    measured: dict[str, Any], outcome: Outcome
) -> None:
    assert outcome is judged(measurement_of(**measured)).outcome
