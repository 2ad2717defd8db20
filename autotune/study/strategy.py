"""Where a search looks: its first candidates when nothing is known, the most promising when
predictions are; and whether predictions would pay."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.candidate import Candidate
from autotune.core.job import Budget, Objective
from autotune.core.prediction import Fit, Prediction
from autotune.core.result import TrialRecord
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical

#: Share of the search that may be spent on tracing, and its bounds in seconds.
_TRACED_SHARE = 0.1
_LEAST_TRACING_S, _MOST_TRACING_S = 10.0, 120.0
_CUT_SHORT = 3.0


def first_candidates(
    candidates: Sequence[Candidate], own: Candidate, facts: Facts
) -> list[Candidate]:
    """Return the candidates every search starts with, in order, those that are valid.

    Each turns one lever of the user's own config as far as it goes, so that the sampler has seen
    every lever once: no checkpointing, a smaller batch, padding-free, packing; then the smallest.

    Args:
        candidates: the valid candidates.
        own: the user's own config.
        facts: job, rows and machine.
    """
    known = {c.key: c for c in candidates}
    batch = int(own.get("per_device_train_batch_size") or 1)
    wanted: list[dict[str, object]] = [
        {"gradient_checkpointing": "none"},
        {"per_device_train_batch_size": 1, "gradient_checkpointing": "none"},
        {
            "per_device_train_batch_size": max(1, batch // 4),
            "gradient_checkpointing": "none",
            "padding_free": True,
            "packing": "none",
        },
    ]
    found: list[Candidate] = []
    for changes in wanted:
        candidate = canonical(own.with_knobs(**changes), facts)  # type: ignore[arg-type]
        if candidate.key in known and candidate not in found and candidate != own:
            found.append(known[candidate.key])
    packed = [c for c in candidates if c.get("packing") == "bfd"]
    if packed:
        best = min(packed, key=lambda c: _packed_order(c, facts))
        if best not in found:
            found.append(best)
    return found


def cheapest(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate that should need least memory: smallest batch, shortest, all savers on.

    Nothing is pruned by this order; it only says where to look first when the baseline does not
    fit, so that "nothing fits" is found out early.
    """

    def order(candidate: Candidate) -> tuple[int, int, int, int]:
        savers = ("full", "reentrant", "selective", "none")
        checkpointing = str(candidate.get("gradient_checkpointing", "none"))
        return (
            int(candidate.get("per_device_train_batch_size") or 1),
            int(candidate.get("max_length") or 0),
            savers.index(checkpointing),
            0 if candidate.get("activation_offloading") else 1,
        )

    return min(candidates, key=order, default=None)


def promising(
    predictions: Sequence[Prediction], budget: Budget, objective: Objective, passed_over: set[str]
) -> Candidate | None:
    """Return the candidate that is expected to be best, of those that are expected to fit.

    Those that may fit come after those that should; None when nothing is left.

    Args:
        predictions: what is expected.
        budget: memory the job may use.
        objective: what is minimised.
        passed_over: keys of candidates that are not to come again.
    """

    def order(one: Prediction) -> tuple[bool, float, float]:
        beyond = one.peak_bytes > budget.usable_bytes
        if objective == "memory":
            return beyond, one.peak_bytes, one.score_seconds
        if objective == "length":
            return beyond, -float(one.candidate.get("max_length") or 0), one.score_seconds
        return beyond, one.score_seconds, one.peak_bytes

    left = [
        p
        for p in predictions
        if p.candidate.key not in passed_over and p.fit(budget) is not Fit.HOPELESS
    ]
    return min(left, key=order).candidate if left else None


def smallest(
    candidates: Sequence[Candidate], predictions: Sequence[Prediction]
) -> Candidate | None:
    """Return the candidate that should need least memory, by prediction where there are any."""
    least = min(predictions, key=lambda p: p.peak_bytes, default=None)
    return cheapest(candidates) if least is None else least.candidate


def tracing_seconds(trials: Sequence[TrialRecord], probes: int) -> float | None:
    """Return how long candidates may be traced before the search; None when it would not pay.

    A tenth of what the probes should take, so that small models, whose probes cost less than
    traces, are never slowed down.

    Args:
        trials: what was probed so far, the baseline at least.
        probes: most probes of the search.
    """
    # A probe that ran out of memory ended early: one that fits takes a few times as long.
    each = [
        t.report.wall_seconds * (_CUT_SHORT if t.report.ending.outcome.is_memory else 1.0)
        for t in trials
        if t.role in ("baseline", "search")
    ]
    seconds = min(_MOST_TRACING_S, _TRACED_SHARE * max(each, default=0.0) * (probes - len(each)))
    return seconds if seconds >= _LEAST_TRACING_S else None


def _packed_order(candidate: Candidate, facts: Facts) -> tuple[int, int, int]:
    return (
        0 if candidate.get("gradient_checkpointing") == "none" else 1,
        int(candidate.get("per_device_train_batch_size") or 1),
        abs(int(candidate.get("max_length") or 0) - facts.lengths.longest),
    )
