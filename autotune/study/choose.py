"""Which candidate wins, and what the ratios are made against; pure.

The user's own config is the reference when it fits. When it does not, the reference is the fitting
candidate with the fewest neutral changes (DESIGN.md 5.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.job import Objective
from autotune.core.outcome import Outcome
from autotune.core.result import Ratio, TrialRecord
from autotune.study.guard import differs
from autotune.study.unmoved import unmoved

_AFTER_THE_SEARCH = ("confirmation", "guard", "verification")
#: Knobs that trade time for memory, and the choice under which each does nothing.
_SAVERS = {"activation_offloading": False, "gradient_checkpointing": "none"}
#: Peaks this near are one peak; twice what a verification allows between its windows.
_SAME_PEAK_RATIO = 0.01


def fitting(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that fit and were timed, confirmations and verifications left out.

    A candidate that failed while it was confirmed, compared or verified is out, whatever it did
    before, and so is one that leaves adapters untrained which others train.
    """
    failed = {
        t.candidate.key for t in trials if t.role in _AFTER_THE_SEARCH and _disproves(t, trials)
    } | unmoved(trials).keys()
    return [
        t
        for t in trials
        if t.report.ending.outcome is Outcome.FITS
        and t.estimate is not None
        and t.role not in _AFTER_THE_SEARCH
        and t.candidate.key not in failed
    ]


def _disproves(trial: TrialRecord, trials: Sequence[TrialRecord]) -> bool:
    """Whether what came after the search shows that a candidate is not to be emitted.

    A comparison shows something only when both updates were seen. A verification that only took
    too long, or met a full disk, shows nothing; one that failed in evaluation may have been
    repeated with a smaller batch.
    """
    outcome = trial.report.ending.outcome
    if outcome is Outcome.FITS or may_recover(trial):
        return False
    if trial.role == "confirmation":
        return True
    if trial.role == "guard":
        return differs(trial.report)
    shown = outcome.is_memory or outcome in (Outcome.INVALID, Outcome.NON_FINITE)
    return shown and verification_of(trials, trial) is None


def may_recover(trial: TrialRecord) -> bool:
    """Whether a probe ended for a reason outside the candidate, so that it may be tried again."""
    return trial.report.ending.outcome in (Outcome.INTERRUPTED, Outcome.POLLUTED)


def score(trial: TrialRecord, objective: Objective) -> tuple[float, ...]:
    """Return what is minimised, ties broken by the next number.

    Args:
        trial: a fitting trial.
        objective: ``throughput`` (time per pass over the reference tokens), ``memory`` (peak), or
            ``length`` (longest sequence first, then time).
    """
    assert trial.estimate is not None and trial.report.measurement is not None
    seconds = trial.estimate.score_seconds
    peak = float(trial.report.measurement.peaks.deciding_bytes or 0)
    if objective == "memory":
        return (peak, seconds)
    if objective == "length":
        return (-float(trial.candidate.get("max_length") or 0), seconds)
    return (seconds, peak)


def ranking(trials: Sequence[TrialRecord], objective: Objective) -> list[TrialRecord]:
    """Return the fitting trials, best first, and last those that save memory in vain."""
    vain = {v.trial.candidate.key for v in in_vain(trials)}
    return sorted(fitting(trials), key=lambda t: (t.candidate.key in vain, *score(t, objective)))


@dataclass(frozen=True)
class InVain:
    """A saver that was measured to save nothing.

    Args:
        knob: the saver.
        trial: a fitting trial that uses it.
        without: the same candidate without it: as small, and faster.
    """

    knob: str
    trial: TrialRecord
    without: TrialRecord


def in_vain(trials: Sequence[TrialRecord]) -> list[InVain]:
    """Return the savers that cost time and save nothing within the noise, each with its proof."""
    fits = fitting(trials)
    return [
        InVain(knob, trial, other)
        for trial in fits
        for other in fits
        for knob, idle in _SAVERS.items()
        if set(trial.candidate.differences(other.candidate)) == {knob}
        and other.candidate.get(knob) == idle
        and _peak(other) <= _peak(trial) * (1.0 + _SAME_PEAK_RATIO)
        and score(other, "throughput")[0] < score(trial, "throughput")[0]
    ]


def _peak(trial: TrialRecord) -> int:
    assert trial.report.measurement is not None
    return trial.report.measurement.peaks.deciding_bytes or 0


def reference(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the trial ratios are made against; None when nothing fits."""
    baseline = next((t for t in reversed(trials) if t.role == "baseline"), None)
    fits = fitting(trials)
    if baseline is not None and baseline in fits:
        return baseline
    if baseline is None or not fits:
        return fits[0] if fits else None

    def distance(trial: TrialRecord) -> tuple[bool, int, int]:
        changes = trial.candidate.differences(baseline.candidate)
        return (trial.changes != "neutral", len(changes), trial.number)

    return min(fits, key=distance)


def choice(
    trials: Sequence[TrialRecord], speedup: Ratio | None, objective: Objective
) -> tuple[TrialRecord | None, str]:
    """Return the chosen trial and why, in one sentence; None when nothing fits.

    Args:
        trials: every probe so far.
        speedup: best against reference, once both were measured in turns.
        objective: what is minimised.
    """
    order, against = ranking(trials, objective), reference(trials)
    if not order or against is None:
        return None, "nothing that was probed fits the budget"
    best = order[0]
    name = "your own config" if against.role == "baseline" else "the fitting config nearest yours"
    if best.candidate.key == against.candidate.key:
        return best, _unbeaten(trials, best, name)
    if objective == "memory":
        return best, f"it has the smallest peak of the {len(order)} that fit"
    if objective == "length":
        length = best.candidate.get("max_length")
        return best, f"it trains the longest sequences that fit ({length} tokens)"
    if speedup is None:
        return best, f"it has the shortest pass of the {len(order)} that fit (not yet confirmed)"
    times = f"{speedup.value:.2f} times as fast"
    interval = f"95 % interval {speedup.low:.2f} to {speedup.high:.2f}"
    if speedup.low <= 1.0:
        return against, (
            f"the fastest candidate does not beat {name} by more than the noise ({times}, "
            f"{interval}), so {name} is kept"
        )
    return best, (
        f"it has the shortest pass of the {len(order)} that fit: {times} as {name} ({interval}, "
        f"measured in turns {speedup.pairs} times)"
    )


def _unbeaten(trials: Sequence[TrialRecord], best: TrialRecord, name: str) -> str:
    """Say why the reference is chosen: nothing beats it, fits beside it, or was probed at all."""
    others = {
        t.candidate.key: t
        for t in trials
        if t.role == "search" and t.candidate.key != best.candidate.key
    }
    measured = [t for t in others.values() if t.estimate is not None]
    if measured:
        return f"nothing that was probed beats {name}"
    if not others:
        return (
            "nothing else was probed; what was skipped is listed with its reason, and "
            "--resume with more --trials or a longer --timeout goes on"
        )
    memory = all(t.report.ending.outcome.is_memory for t in others.values())
    verb = "fits" if memory else "could be measured"
    return f"it is the only one: none of the {len(others)} others that were probed {verb}"


def verification_of(trials: Sequence[TrialRecord], trial: TrialRecord | None) -> TrialRecord | None:
    """Return the passed verification of a trial's candidate; None when there is none."""
    if trial is None:
        return None
    return next(
        (
            t
            for t in reversed(trials)
            if t.role == "verification"
            and t.candidate.key == trial.candidate.key
            and t.report.ending.outcome is Outcome.FITS
        ),
        None,
    )


def paired_ratio(
    reference_seconds: Sequence[float], candidate_seconds: Sequence[float], key: str
) -> Ratio:
    """Return how much faster the candidate is, from measurements taken in turns.

    Args:
        reference_seconds: score of the reference in every round.
        candidate_seconds: score of the candidate in the same rounds.
        key: the reference's key.

    Value and interval are of one estimator, the geometric mean of the paired ratios, so that the
    value lies in its interval: Student's t on their logarithms, 95 %, two-sided.
    """
    logs = np.log(np.asarray(reference_seconds) / np.asarray(candidate_seconds))
    middle = float(logs.mean())
    count = len(logs)
    half = (
        _T_95[min(count, len(_T_95)) - 1] * float(logs.std(ddof=1)) / np.sqrt(count)
        if (count > 1)
        else float("inf")
    )
    return Ratio(
        reference=key,
        value=float(np.exp(middle)),
        low=float(np.exp(middle - half)),
        high=float(np.exp(min(middle + half, 700.0))),
        pairs=count,
    )


#: Two-sided 95 % quantile of Student's t for 1, 2, 3, ... samples (n - 1 degrees of freedom).
_T_95 = (np.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
