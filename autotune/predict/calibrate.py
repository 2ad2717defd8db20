"""Corrects predictions from finished probes of the same device; pure, and shrunk to the prior.

Time: one factor common to all kinds of work, and one deviation from it per kind, by ridge
regression of relative errors with Huber weights. Peak: a ratio and an offset, the same way. With
no probe nothing is corrected; every probe moves the answer further from the prior and makes the
band narrower, down to what the residuals allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.time_model import FloatArray
from autotune.predict.step_time import StepTimes

#: Standard deviation of log(measured / predicted) before any probe: published efficiencies differ
#: by a factor of 1.5 between shapes (efficiencies.py), rates measured on the device itself by less.
_TIME_SPREAD = 0.40
_TIME_SPREAD_MEASURED = 0.25
#: The same of peaks: allocated against what the process is charged with (fragmentation, context).
_PEAK_SPREAD = 0.08
#: The prior counts as this many probes when spreads are joined.
_PRIOR_PROBES = 2.0
#: Weight of the prior on a kind's own deviation, and on an offset: the squared ratio of what two
#: equal probes differ by (some percent) to what kinds differ by (tens of percent).
_RIDGE = 0.05
#: Two-sided 90 % of a normal distribution.
_BAND = 1.645
#: Huber's tuning constant in standard deviations (95 % efficiency; Huber 1981).
_HUBER = 1.345
_ROUNDS = 8
#: A kind of work is never taken as this much faster or slower than all others.
_DEVIATION = 4.0


@dataclass(frozen=True)
class TimeSeen:
    """What one probe took and what was predicted for exactly those steps.

    Args:
        parts: predicted seconds by part, above zero together.
        seconds: measured seconds, above zero.
    """

    parts: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class PeakSeen:
    """What one probe needed and what was predicted.

    Args:
        predicted_bytes: the traced peak.
        measured_bytes: what it was charged with, or needed at least.
        at_least: it did not fit, so only a lower bound is known.
    """

    predicted_bytes: int
    measured_bytes: int
    at_least: bool = False


@dataclass(frozen=True)
class TimeCorrection:
    """Turn predicted seconds into expected ones.

    Args:
        common: factor of parts that have none of their own.
        factors: factor by part.
        band_ratio: half width of the 90 % band, relative; 0.5 means from 1/1.5 to 1.5 times.
        probes: how many it rests on.
    """

    common: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)
    band_ratio: float = float(np.expm1(_BAND * _TIME_SPREAD))
    probes: int = 0

    def corrected(self, times: StepTimes) -> StepTimes:
        """Return the expected times."""
        parts = {name: self.factors.get(name, self.common) * s for name, s in times.parts.items()}
        return StepTimes(parts, self.common * times.host, times.operations)


@dataclass(frozen=True)
class PeakCorrection:
    """Turn traced peaks into what a process is charged with.

    Args:
        ratio: factor of the traced peak.
        offset_bytes: added to it.
        band_ratio: half width of the 90 % band, relative.
        probes: how many it rests on.
    """

    ratio: float = 1.0
    offset_bytes: float = 0.0
    band_ratio: float = float(np.expm1(_BAND * _PEAK_SPREAD))
    probes: int = 0

    def peak_bytes(self, traced_bytes: int) -> int:
        """Return the expected peak."""
        return max(0, round(self.ratio * traced_bytes + self.offset_bytes))


def correct_time(seen: Sequence[TimeSeen], *, measured_rates: bool = False) -> TimeCorrection:
    """Return the correction finished probes ask for.

    Args:
        seen: one per probe that was timed.
        measured_rates: whether the prediction used rates measured on this device.
    """
    spread = _TIME_SPREAD_MEASURED if measured_rates else _TIME_SPREAD
    if not seen:
        return TimeCorrection(band_ratio=float(np.expm1(_BAND * spread)))
    names = sorted({name for one in seen for name in one.parts})
    parts = np.asarray([[one.parts.get(name, 0.0) for name in names] for one in seen])
    took = np.asarray([one.seconds for one in seen])
    logs = np.log(took / parts.sum(axis=1))
    # The common factor: a median, drawn to 1 as if the prior were part of the sample.
    prior = (spread / max(float(np.std(logs)), 0.05)) ** -2
    common = float(np.exp(np.median(logs) * len(seen) / (len(seen) + min(prior, 1.0))))
    shares = common * parts / took[:, None]
    deviations = _robust_ridge(shares, 1.0 - shares.sum(axis=1))
    factors = common * np.clip(1.0 + deviations, 1.0 / _DEVIATION, _DEVIATION)
    left = np.log(took / (parts @ factors))
    return TimeCorrection(
        common=common,
        factors=dict(zip(names, factors.tolist(), strict=True)),
        band_ratio=_band(left, spread),
        probes=len(seen),
    )


def correct_peak(seen: Sequence[PeakSeen], *, prior_offset_bytes: int = 0) -> PeakCorrection:
    """Return the correction finished probes ask for.

    Args:
        seen: one per probe with a known peak, or one that did not fit and whose need is bounded.
        prior_offset_bytes: what a process is charged with beside the traced peak, before any probe.
    """
    correction = PeakCorrection(offset_bytes=float(prior_offset_bytes))
    # A bound that the corrected prediction already respects teaches nothing.
    used: list[PeakSeen] = [one for one in seen if not one.at_least]
    correction = _peak_from(used, prior_offset_bytes) if used else correction
    bounds = [
        one
        for one in seen
        if one.at_least and one.measured_bytes > correction.peak_bytes(one.predicted_bytes)
    ]
    return _peak_from([*used, *bounds], prior_offset_bytes) if bounds else correction


def _peak_from(seen: Sequence[PeakSeen], prior_offset_bytes: int) -> PeakCorrection:
    traced = np.asarray([float(one.predicted_bytes) for one in seen])
    needed = np.asarray([float(one.measured_bytes) for one in seen])
    scale = float(np.median(needed))
    features: FloatArray = np.stack([traced, np.full(len(seen), scale)], axis=1) / needed[:, None]
    target = (needed - traced - prior_offset_bytes) / needed
    ratio, offset = _robust_ridge(features, target)
    ratio, offset_bytes = 1.0 + ratio, prior_offset_bytes + offset * scale
    left = np.log(needed / np.maximum(ratio * traced + offset_bytes, 1.0))
    return PeakCorrection(float(ratio), float(offset_bytes), _band(left, _PEAK_SPREAD), len(seen))


def _robust_ridge(features: FloatArray, target: FloatArray) -> FloatArray:
    """Solve ``features @ x = target`` for small x, outliers weighed down.

    Args:
        features: float64[n, k].
        target: float64[n].
    """
    weights: NDArray[np.floating[Any]] = np.ones(len(target))
    solved: NDArray[np.floating[Any]] = np.zeros(features.shape[1])
    penalty = _RIDGE * np.eye(features.shape[1]) * max(float((features**2).max()), 1e-12)
    for _ in range(_ROUNDS):
        weighted = features * weights[:, None]
        solved = np.linalg.solve(weighted.T @ features + penalty, weighted.T @ target)
        error = np.abs(target - features @ solved)
        sigma = 1.4826 * float(np.median(error)) + 1e-9
        weights = np.clip(_HUBER * sigma / np.maximum(error, 1e-12), 1e-3, 1.0)
    return solved.astype(np.float64)


def _band(left: FloatArray, prior_spread: float) -> float:
    """Return the half width of the band: the prior's spread and the residuals', joined."""
    known = _PRIOR_PROBES * prior_spread**2 + float((left**2).sum())
    # n probes have been used to fit about one factor, so they leave n - 1 to judge the spread by;
    # the prior's own weight falls as they come in.
    joined = known / (_PRIOR_PROBES + len(left) * (len(left) + 1) / 2)
    spread = max(np.sqrt(joined), float(np.median(np.abs(left))) * 1.4826)
    return float(np.expm1(_BAND * spread))
