"""Corrections from finished probes, on synthetic devices whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.predict.calibrate import (
    PeakSeen,
    TimeCorrection,
    TimeSeen,
    correct_peak,
    correct_time,
)
from autotune.predict.step_time import StepTimes
from tests.support.work import seconds_of

MIB = 2**20
#: A device on which everything is 1.7 times as slow as predicted, copies 3 times.
SLOWER = {"matmul": 1.7, "elementwise": 1.7, "copy": 3.0}


def steps(count: int, seed: int = 0) -> list[dict[str, float]]:
    """Return predicted parts of different steps: copies weigh little in some and much in others."""
    rng = np.random.default_rng(seed)
    return [
        {
            "matmul": float(rng.uniform(0.1, 1.0)),
            "elementwise": float(rng.uniform(0.05, 0.2)),
            "copy": float(rng.uniform(0.01, 0.5)),
        }
        for _ in range(count)
    ]


def seen(count: int, noise: float = 0.0, seed: int = 0) -> list[TimeSeen]:
    rng = np.random.default_rng(seed + 1)
    return [
        TimeSeen(parts, seconds_of(parts, SLOWER) * float(np.exp(noise * rng.normal())))
        for parts in steps(count, seed)
    ]


def corrected(correction: TimeCorrection, parts: dict[str, float]) -> float:
    """Return the corrected seconds of one step."""
    one = {name: np.asarray([seconds]) for name, seconds in parts.items()}
    return float(correction.corrected(StepTimes(one, np.zeros(1), np.zeros(1))).seconds[0])


def errors(count: int, noise: float = 0.0) -> list[float]:
    """Return relative errors on steps no probe has seen."""
    correction = correct_time(seen(count, noise))
    return [
        abs(corrected(correction, parts) / seconds_of(parts, SLOWER) - 1.0)
        for parts in steps(40, seed=99)
    ]


def test_without_probes_nothing_is_corrected() -> None:
    correction = correct_time([])
    assert 1.0 == corrected(correction, {"matmul": 0.75, "copy": 0.25})
    assert 0 == correction.probes


def test_one_probe_already_moves_the_prediction_most_of_the_way() -> None:
    assert max(errors(1)) < 0.5 < 1.0 - 1.0 / 1.7 + 0.2
    assert np.median(errors(1)) < 0.35


def test_probes_tell_slow_kinds_from_a_slow_device() -> None:
    factors = correct_time(seen(16)).factors
    assert factors["copy"] > 1.4 * factors["matmul"]
    assert np.median(errors(16)) < 0.06


def test_more_probes_are_never_much_worse_and_the_band_shrinks() -> None:
    medians = [float(np.median(errors(n, noise=0.02))) for n in (1, 3, 6, 12)]
    assert medians[-1] < 0.5 * medians[0]
    bands = [correct_time(seen(n, noise=0.02)).band_ratio for n in (0, 1, 3, 6, 12)]
    assert sorted(bands, reverse=True) == bands


def test_the_band_holds_what_it_promises() -> None:
    correction = correct_time(seen(8, noise=0.05))
    inside = [
        1 / (1 + correction.band_ratio)
        <= seconds_of(parts, SLOWER) / corrected(correction, parts)
        <= 1 + correction.band_ratio
        for parts in steps(50, seed=7)
    ]
    assert sum(inside) >= 45


def test_one_disturbed_probe_does_not_spoil_the_others() -> None:
    probes = seen(8)
    probes[3] = TimeSeen(probes[3].parts, 5 * probes[3].seconds)
    correction = correct_time(probes)
    off = [abs(corrected(correction, p) / seconds_of(p, SLOWER) - 1.0) for p in steps(20, 5)]
    assert np.median(off) < 0.15


def test_rates_measured_here_start_with_a_narrower_band() -> None:
    assert correct_time([], measured_rates=True).band_ratio < correct_time([]).band_ratio


def test_peaks_learn_a_ratio_and_an_offset() -> None:
    def truth(traced: int) -> int:
        return int(1.06 * traced + 80 * MIB)

    traced = [n * MIB for n in (200, 500, 900, 1500, 2600)]
    correction = correct_peak([PeakSeen(t, truth(t)) for t in traced])
    for unseen in (300 * MIB, 2000 * MIB):
        assert truth(unseen) == pytest.approx(correction.peak_bytes(unseen), rel=0.03)
    bands = [
        correct_peak([PeakSeen(t, truth(t)) for t in traced[:n]]).band_ratio for n in (0, 2, 5)
    ]
    assert sorted(bands, reverse=True) == bands


def test_a_known_offset_is_there_before_any_probe() -> None:
    assert 700 * MIB == correct_peak([], prior_offset_bytes=600 * MIB).peak_bytes(100 * MIB)


def test_a_candidate_that_did_not_fit_raises_a_prediction_that_said_it_would() -> None:
    optimistic = PeakSeen(500 * MIB, 640 * MIB, at_least=True)
    assert correct_peak([optimistic]).peak_bytes(500 * MIB) > 560 * MIB


def test_a_candidate_that_did_not_fit_as_predicted_teaches_nothing() -> None:
    fits = PeakSeen(200 * MIB, 200 * MIB)
    agreed = PeakSeen(900 * MIB, 640 * MIB, at_least=True)
    assert correct_peak([fits]) == correct_peak([fits, agreed])
