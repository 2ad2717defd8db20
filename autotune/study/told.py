"""What Optuna is told of a candidate that was probed: an objective, a constraint, or nothing; pure.

A candidate that needs too much memory is a finished trial whose constraint is violated, because
samplers ignore failed ones (DESIGN.md 6). Its objective is the best estimate there is of it, not
a bad one: whether it fits is the constraint's business, and a model of the objective (Optuna's GP)
must not be taught a cliff that is not there. TPE ranks such trials by their violation alone.

A probe that did not end in time is one whose time is known to be long: the sampler is told the
least it can be, with no word on memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.job import Budget, Objective
from autotune.core.result import TrialRecord
from autotune.study.choose import score
from autotune.study.limits import least_score

#: Violation of a candidate that ran out of memory by an unknown amount.
_LEAST_VIOLATION = 0.01


@dataclass(frozen=True)
class Told:
    """The end of a trial, in Optuna's terms.

    Args:
        value: what is minimised, see `autotune.study.choose.score`.
        violation: ``peak / limit - 1``; above zero means that it does not fit.
    """

    value: float
    violation: float


def told(
    record: TrialRecord, trials: Sequence[TrialRecord], budget: Budget, objective: Objective
) -> Told | None:
    """Return what Optuna is told of a record; None fails its trial, which no sampler reads.

    Args:
        record: what was probed.
        trials: every record there is, for the best objective known so far.
        budget: memory the job may use.
        objective: what is minimised.
    """
    if record.estimate is not None:
        return Told(score(record, objective)[0], _violation(record, budget))
    if record.report.ending.outcome.is_memory:
        value = estimated_objective(record, trials, objective)
        return Told(value, _violation(record, budget))
    bound = least_score(record, trials) if objective == "throughput" else None
    return None if bound is None else Told(bound, 0.0)


def estimated_objective(
    record: TrialRecord, trials: Sequence[TrialRecord], objective: Objective
) -> float:
    """Return the best known estimate of the objective of a candidate that does not fit.

    Its own length where that is the objective; else its own prediction as it was before the probe,
    corrected by the probes until then, where the run has predictions; else the best objective
    measured so far; zero while nothing is measured, when there is nothing to compare it with.

    Args:
        record: a candidate that needs too much memory.
        trials: every record there is.
        objective: what is minimised.
    """
    if objective == "length":
        return -float(record.candidate.get("max_length") or 0)
    expected = record.prediction
    if expected is not None:
        needed = record.report.needed_bytes or 0
        peak = float(max(expected.peak_bytes, needed))
        return peak if objective == "memory" else expected.score_seconds
    return min((score(t, objective)[0] for t in trials if t.estimate is not None), default=0.0)


def _violation(record: TrialRecord, budget: Budget) -> float:
    limit = budget.usable_bytes
    measured = record.report.measurement
    if record.report.ending.outcome.is_memory:
        return max(_LEAST_VIOLATION, (record.report.needed_bytes or limit) / limit - 1.0)
    peak = measured.peaks.deciding_bytes if measured is not None else None
    # It ran under the cap, so it fits: a resident peak a little above stays at the border.
    return min(0.0, (peak or limit) / limit - 1.0)
