"""What giving cached memory back every so many updates costs a pass (``torch_empty_cache_steps``).

A probe empties the cache more often than the user's run would, so that its cost is seen apart from
the other steps; in the run's own rhythm it would come once in a probe, or never.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.core.measurement import Step
from autotune.core.result import Estimate
from autotune.core.time_model import TimeModel
from autotune.knobs.facts import Facts
from autotune.knobs.translate import Settings


def rhythm(settings: Settings, facts: Facts) -> int | None:
    """Return every how many updates a candidate empties the cache; None where that needs no look.

    Where it happens at every update, all steps are timed with it.

    Args:
        settings: what the candidate means to TRL.
        facts: job, rows and machine.
    """
    own = facts.option("torch_empty_cache_steps")
    every = settings.options.get("torch_empty_cache_steps", own)
    return int(every) if every is not None and int(every) > 1 else None


def undisturbed(steps: Sequence[Step], every: int | None) -> list[Step]:
    """Return the steps in which no cache was emptied, all of them where that is every step's lot.

    Args:
        steps: timed micro-steps.
        every: from `rhythm`.
    """
    calm = [step for step in steps if not step.emptied]
    return calm if calm and every is not None else list(steps)


def emptying_seconds(
    steps: Sequence[Step], model: TimeModel, every: int | None, micro_steps: int
) -> float | None:
    """Return what emptying the cache adds to a pass; None where that is not known.

    Args:
        steps: timed micro-steps.
        model: fitted to those in which nothing was emptied.
        every: from `rhythm`.
        micro_steps: of the pass; the cache is emptied in each of those of an update whose turn it
            is.
    """
    if every is None:
        return 0.0
    emptied = [step for step in steps if step.emptied]
    if not emptied:
        return None
    tokens = np.asarray([step.padded_tokens for step in emptied], dtype=np.float64)
    width = np.asarray([step.width for step in emptied], dtype=np.float64)
    took = np.asarray([step.seconds for step in emptied])
    each = max(0.0, float(np.median(took - model.seconds(tokens, width))))
    return each * micro_steps / every


def unknown_words(estimate: Estimate | None) -> str:
    """Say that the cost is in no time of a candidate; empty where it is known."""
    if estimate is None or estimate.emptying_seconds is not None:
        return ""
    return (
        "what emptying the allocator's cache costs (torch_empty_cache_steps) was not measured and "
        "is not in the time"
    )
