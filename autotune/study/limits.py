"""When a search and each of its probes end: as the user says, else by what is expected of it. Pure.

A default must never cost the user the measurement of their own config: it may take what it takes.
Every other probe has `EXPECTED_TIMES` the time expected of it, from probes that ran on this machine
and from predictions. What is said for certain, ``--probe-timeout`` and ``--timeout``, is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.core.candidate import Candidate
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.prediction import Prediction
from autotune.core.result import TrialRecord

#: A probe is ended when it takes so many times what is expected. Predicted times are off by less
#: than half, but loads of a shared machine change steps by several times from minute to minute.
EXPECTED_TIMES = 10.0
#: Seconds a probe has at least on a quiet machine: one that starts from scratch imports libraries.
_LEAST_S = 120.0
#: A verification runs ten times the updates of a probe and times none: it gets more time.
VERIFICATION_TIMES = 5
#: Seconds the checks of the winner are given at least, however short the search is to be.
_LEAST_CHECKS_S = 60.0
#: Micro-steps of a probe, at most about: worst batches, warm-up, and those that are timed.
_UNTIMED_STEPS, _TIMED_STEPS, _TIMED_ROWS = 16, 8, 64
#: A worst batch takes this many times the mean micro-step, about.
_WORST_TIMES = 3.0
#: A deadline is another one only when it is longer by this much.
_LONGER = 1.2
_LONG = ("verification", "guard")

Predicted = Callable[[Candidate], Prediction | None]


@dataclass(frozen=True)
class Limits:
    """When to stop.

    Args:
        trials: probes of the search, the baseline included.
        search_s: seconds the search may take; None without a bound.
        probe_s: seconds one probe may take, where the user says so; None follows what is expected.
        slowdown: how many times as long work takes here now as on a quiet machine.
    """

    trials: int
    search_s: float | None
    probe_s: float | None = None
    slowdown: float = 1.0

    @property
    def checks_s(self) -> float | None:
        """Seconds confirming and verifying the winner may take beyond the search; None: no bound.

        What has begun then is finished, within its own limit.
        """
        return None if self.search_s is None else max(_LEAST_CHECKS_S, self.search_s / 2)


@dataclass(frozen=True)
class Deadline:
    """When a probe is ended.

    Args:
        seconds: after its start; infinite where it may take what it takes.
        source: the option that says so, or what is expected of the probe.
    """

    seconds: float
    source: Literal["--probe-timeout", "--timeout", "expected"]


def deadline_of(
    candidate: Candidate,
    role: str,
    limits: Limits,
    trials: Sequence[TrialRecord],
    predicted: Predicted,
    left_s: float,
) -> Deadline:
    """Return when the next probe is ended.

    Args:
        candidate: what it measures.
        role: what for, as in `TrialRecord.role`.
        limits: of the search.
        trials: every record there is.
        predicted: returns what is expected of a candidate, None when it was not traced.
        left_s: what is left of ``--timeout`` and of the time for checks; may be infinite.
    """
    times = VERIFICATION_TIMES if role in _LONG else 1
    if limits.probe_s is not None:
        return Deadline(times * limits.probe_s, "--probe-timeout")
    expected = None if role == "baseline" else expected_seconds(candidate, trials, predicted)
    seconds = math.inf
    if expected is not None:
        seconds = times * max(_LEAST_S * limits.slowdown, EXPECTED_TIMES * expected)
    if role in ("baseline", "search") and left_s < seconds:
        return Deadline(left_s, "--timeout")
    return Deadline(seconds, "expected")


def expected_seconds(
    candidate: Candidate, trials: Sequence[TrialRecord], predicted: Predicted
) -> float | None:
    """Return how long a probe of a candidate should take; None while nothing tells.

    Its own probes tell most; then those of others, whose steps are scaled by the predicted times
    where both have one; then the prediction alone, after the time the probes so far took to load.

    Args:
        candidate: what is to be measured.
        trials: every record there is.
        predicted: as for `deadline_of`.
    """
    ran = [t for t in trials if t.estimate is not None]
    own = [t.report.wall_seconds for t in ran if t.candidate.key == candidate.key]
    if own:
        return max(own)
    mine = predicted(candidate)
    if ran:
        return max(_scaled(trial, mine, predicted(trial.candidate)) for trial in ran)
    if mine is None:
        return None
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    steps = _UNTIMED_STEPS + max(_TIMED_STEPS, math.ceil(_TIMED_ROWS / batch))
    load = max((t.report.wall_seconds for t in trials if not is_late(t)), default=0.0)
    return load + steps * (_WORST_TIMES * mine.micro_step_seconds + mine.optimizer_seconds)


def _scaled(trial: TrialRecord, mine: Prediction | None, other: Prediction | None) -> float:
    """Return the time of a probe that ran, its steps made as slow as those of a candidate."""
    load, steps = _load_and_steps(trial)
    if mine is None or other is None or other.score_seconds <= 0:
        return load + steps
    return load + steps * max(1.0, mine.score_seconds / other.score_seconds)


def _load_and_steps(trial: TrialRecord) -> tuple[float, float]:
    """Return the seconds a probe took for its steps, and for everything else."""
    measured = trial.report.measurement
    steps = measured.steps_seconds if measured is not None else 0.0
    wall = max(trial.report.wall_seconds, steps)
    return wall - steps, steps


def explained(ending: Ending, deadline: Deadline) -> Ending:
    """Return an ending that says, where time was its reason, whose limit that was and the remedy.

    Args:
        ending: of a probe under that deadline.
        deadline: when it was to end.
    """
    if ending.outcome is not Outcome.TIMEOUT:
        return ending
    longer = _longer(deadline.seconds)
    words = {
        "--probe-timeout": f"; --probe-timeout {longer} gives it more time",
        "--timeout": f", which is when --timeout was over; --timeout {longer} gives more time",
        "expected": f", {EXPECTED_TIMES:.0f} times what was expected; --probe-timeout {longer} "
        "gives it more time",
    }
    return ending.model_copy(update={"reason": ending.reason + words[deadline.source]})


def _longer(seconds: float) -> str:
    """Return five times a duration, as it is typed."""
    minutes = math.ceil(5 * seconds / 60)
    return f"{minutes}m" if minutes < 60 else f"{math.ceil(minutes / 60)}h"


def is_late(trial: TrialRecord) -> bool:
    """Whether a probe did not end in time."""
    return trial.report.ending.outcome is Outcome.TIMEOUT


def has_more_time(trial: TrialRecord, deadline: Deadline) -> bool:
    """Whether a probe that did not end in time would have clearly more of it now."""
    return is_late(trial) and deadline.seconds >= _LONGER * trial.report.wall_seconds


def least_score(trial: TrialRecord, trials: Sequence[TrialRecord]) -> float | None:
    """Return a lower bound on the time of a candidate whose probe did not end; None: not known.

    Its steps took longer than what was left after loading; probes that ended say how long an epoch
    takes per second of their steps. Where none did, its own prediction, which is none too long.

    Args:
        trial: a probe that was ended; one that was still loading tells nothing.
        trials: every record there is.
    """
    if not is_late(trial) or trial.report.ending.phase is Phase.LOAD:
        return None
    bounds = []
    for other in trials:
        load, steps = _load_and_steps(other)
        if other.estimate is not None and steps > 0:
            took = max(0.0, trial.report.wall_seconds - load)
            bounds.append(other.estimate.score_seconds * took / steps)
    expected = trial.prediction
    if bounds:
        return min(bounds) if expected is None else max(min(bounds), expected.score_seconds)
    return None if expected is None else expected.score_seconds


def fastest_late(
    predictions: Sequence[Prediction], trials: Sequence[TrialRecord]
) -> TrialRecord | None:
    """Return the probe that did not end in time and is predicted fastest; None when all ended.

    One that was still loading says nothing of steps, nor does one whose candidate ran since.

    Args:
        predictions: what is expected now.
        trials: every record there is.
    """
    seconds = {p.candidate.key: p.score_seconds for p in predictions}
    ran = {t.candidate.key for t in trials if t.estimate is not None}
    late = [
        t
        for t in trials
        if is_late(t)
        and t.role in ("baseline", "search")
        and t.report.ending.phase is not Phase.LOAD
        and t.candidate.key in seconds.keys() - ran
    ]
    return min(late, key=lambda t: seconds[t.candidate.key], default=None)


def slower_than_late(
    predictions: Sequence[Prediction], trials: Sequence[TrialRecord]
) -> list[Prediction]:
    """Return what was not probed and is predicted to be slower than a probe that did not end.

    Arguments are those of `fastest_late`.
    """
    first = fastest_late(predictions, trials)
    if first is None:
        return []
    probed = {t.candidate.key for t in trials}
    least = next(p.score_seconds for p in predictions if p.candidate.key == first.candidate.key)
    return [p for p in predictions if p.score_seconds >= least and p.candidate.key not in probed]
