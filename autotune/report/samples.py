"""Read a quantity and its noise out of a measured trial.

The noise is the half-width of a 95 % interval, from the raw samples; what was measured once has
none. Does not judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from autotune.core.measurement import Measurement
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
        noise: half-width of its 95 % interval, same unit; 0 where it was measured once.
    """

    value: float
    noise: float = 0.0


def sample_of(
    result: Result, trial: TrialRecord, metric: str, part: str | None, speed: str
) -> Sample | None:
    """Read one quantity of a trial, None when it was not measured.

    Args:
        result: the result the trial is of.
        trial: the chosen candidate.
        metric: key of `METRICS`.
        part: key of `MEMORY_PARTS` or None.
        speed: ``absolute``, or ``ratio`` to the reference candidate of the same run.
    """
    measurement = trial.report.measurement
    if measurement is None:
        return None
    if metric == "peak_memory":
        peaks = measurement.peaks
        value = peaks.deciding_bytes if part is None else getattr(peaks, MEMORY_PARTS[part])
        return None if value is None else Sample(float(value))
    if metric == "step_time":
        return _step_time(measurement)
    if speed == "ratio":
        found = result.speedup
        return Sample(found.value, (found.high - found.low) / 2) if found else None
    if trial.estimate is None:
        return None
    value = trial.estimate.useful_tokens_per_s
    count = max(len(measurement.timed_steps), 1)
    return Sample(value, value * _MEDIAN_95 * trial.estimate.spread_ratio / math.sqrt(count))


def _step_time(measurement: Measurement) -> Sample | None:
    seconds = [step.seconds for step in measurement.timed_steps]
    if not seconds:
        return None
    middle = median(seconds)
    deviation = median(abs(s - middle) for s in seconds)
    return Sample(middle, _MEDIAN_95 * deviation / math.sqrt(len(seconds)))


def paired(
    pair: tuple[Sample | None, Sample | None], before: Measurement, now: Measurement
) -> tuple[Sample | None, Sample | None]:
    """Take the noise of a step time from ratios of steps of one shape; unlike shapes are no noise.

    Args:
        pair: both samples.
        before: measurement of the first.
        now: measurement of the second.
    """
    one, two = before.timed_steps, now.timed_steps
    shapes = [[(step.rows, step.width) for step in steps] for steps in (one, two)]
    if not one or pair[0] is None or pair[1] is None or shapes[0] != shapes[1]:
        return pair
    ratios = [b.seconds / a.seconds for a, b in zip(one, two, strict=True)]
    middle = median(ratios)
    deviation = median(abs(ratio - middle) for ratio in ratios)
    noise = pair[0].value * _MEDIAN_95 * deviation / math.sqrt(len(ratios))
    return Sample(pair[0].value), Sample(pair[1].value, noise)
