"""Which trials are set beside each other, and what stands in the way where nothing fits."""

from __future__ import annotations

from autotune.core.result import Result, TrialRecord
from autotune.report.anatomy import traced_peak
from autotune.report.levers import dominance


def side_by_side(result: Result) -> list[tuple[str, TrialRecord]]:
    """Return what is shown beside each other, with its short name.

    The winner and the reference; where nothing fits, the user's own config and the nearest miss.
    """
    if result.best_trial is not None:
        pair = {"chosen": result.best_trial, "reference": result.reference_trial}
    else:
        pair = {"your config": result.baseline_trial, "nearest": nearest_miss(result)}
    found: list[tuple[str, TrialRecord]] = []
    for name, trial in pair.items():
        if trial is not None and trial.candidate.key not in [t.candidate.key for _, t in found]:
            found.append((name, trial))
    return found


def nearest_miss(result: Result) -> TrialRecord | None:
    """Return the trial that was nearest to fitting, None when none says what it needs.

    A cap hides how much more was needed, so most of these bounds are equal: the later trial is
    then the nearer, since what is tried last needs least.
    """
    known = [t for t in result.trials if t.report.needed_bytes is not None]
    return min(reversed(known), key=lambda t: t.report.needed_bytes or 0) if known else None


def what_dominates(result: Result) -> str:
    """Say what takes most of the nearest miss's peak and what would change that; may be empty."""
    trial = nearest_miss(result)
    traced = traced_peak(result, trial) if trial is not None else None
    if trial is None or traced is None:
        return ""
    return dominance(traced.split, traced.peak_bytes, trial.candidate)
