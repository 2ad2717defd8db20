"""Read a quantity and its noise out of a measured trial.

The noise is the half-width of a 95 % interval, from the raw samples, or the range of repeats; what
was measured once has none. Does not judge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.core.measurement import Measurement, Step
from autotune.core.result import Result, TrialRecord
from autotune.report.thresholds import MEMORY_PARTS

#: Half-width of the 95 % interval of a median of n values with a median absolute deviation of 1,
#: times the root of n: 1.96 (normal), 1.2533 (median against mean), 1.4826 (deviation from MAD).
_MEDIAN_95 = 1.96 * 1.2533 * 1.4826


@dataclass(frozen=True)
class Sample:
    """One quantity of one result.

    Args:
        value: bytes, tokens per second, seconds, or a ratio.
        noise: what it may differ by without a cause, same unit; 0 where it was measured once.
    """

    value: float
    noise: float = 0.0


def sample_of(
    result: Result, trial: TrialRecord, metric: str, part: str | None, speed: str
) -> Sample | None:
    """Read one quantity of a trial, None when it was not measured.

    A candidate measured several times counts with its median, and what its repeats differ by is
    noise.

    Args:
        result: the result the trial is of.
        trial: the chosen candidate.
        metric: key of `METRICS`.
        part: key of `MEMORY_PARTS` or None.
        speed: ``absolute``, or ``ratio`` to the reference candidate of the same run.
    """
    fits = result.fits_of(trial.candidate.key) or (trial,)
    measured = [t.report.measurement for t in fits if t.report.measurement is not None]
    if not measured:
        return None
    if metric == "peak_memory":
        return _middle([_peak(m, part) for m in measured])
    if metric == "step_time":
        seconds = [step.seconds for step in steps_of(result, trial)]
        return Sample(median(seconds), _half_width(seconds)) if seconds else None
    if speed == "ratio":
        found = result.speedup
        return Sample(found.value, (found.high - found.low) / 2) if found else None
    timed = result.timed_of(trial.candidate.key)
    sample = _middle([t.estimate.useful_tokens_per_s for t in timed if t.estimate])
    if sample is None or trial.estimate is None:
        return None
    count = max(len(measured[0].steady_steps), 1)
    within = sample.value * _MEDIAN_95 * trial.estimate.spread_ratio / math.sqrt(count)
    return Sample(sample.value, max(within, sample.noise))


def steps_of(result: Result, trial: TrialRecord) -> tuple[Step, ...]:
    """Return the steady steps of a candidate, each with the median time of its repeats.

    Args:
        result: the result the trial is of.
        trial: the candidate; repeats of other shapes than the first are left out.
    """
    timed = result.timed_of(trial.candidate.key) or (trial,)
    series = [t.report.measurement.steady_steps for t in timed if t.report.measurement]
    alike = [steps for steps in series if shapes(steps) == shapes(series[0])]
    return tuple(
        step.model_copy(update={"seconds": median(steps[n].seconds for steps in alike)})
        for n, step in enumerate(series[0] if series else ())
    )


def shapes(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return what the time of each step depends on."""
    return [(step.rows, step.width) for step in steps]


def _peak(measurement: Measurement, part: str | None) -> int | None:
    peaks = measurement.peaks
    value: int | None = peaks.deciding_bytes if part is None else getattr(peaks, MEMORY_PARTS[part])
    return value


def _middle(values: Sequence[float | None]) -> Sample | None:
    known = [float(v) for v in values if v is not None]
    if not known or len(known) < len(values):
        return None
    return Sample(median(known), max(known) - min(known))


def _half_width(values: Sequence[float]) -> float:
    middle = median(values)
    return _MEDIAN_95 * median(abs(v - middle) for v in values) / math.sqrt(len(values))


def paired(
    pair: tuple[Sample | None, Sample | None], before: Sequence[Step], now: Sequence[Step]
) -> tuple[Sample | None, Sample | None]:
    """Take the noise of a step time from ratios of steps of one shape; unlike shapes are no noise.

    Args:
        pair: both samples.
        before: timed steps of the first.
        now: timed steps of the second.
    """
    if not before or pair[0] is None or pair[1] is None or shapes(before) != shapes(now):
        return pair
    ratios = [b.seconds / a.seconds for a, b in zip(before, now, strict=True)]
    return Sample(pair[0].value), Sample(pair[1].value, pair[0].value * _half_width(ratios))
