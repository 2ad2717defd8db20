"""How a probe ended, and where; the only words any part of autotune uses for it."""

from __future__ import annotations

from enum import StrEnum

from autotune.core.job import Frozen


class Outcome(StrEnum):
    """Name how a probe ended."""

    FITS = "fits"
    OOM_DEVICE = "oom_device"
    OOM_HOST = "oom_host"
    SPILLED = "spilled"
    INVALID = "invalid"
    NON_FINITE = "non_finite"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    POLLUTED = "polluted"

    @property
    def is_memory(self) -> bool:
        """Whether the candidate needs more memory than it may have."""
        return self in (Outcome.OOM_DEVICE, Outcome.OOM_HOST, Outcome.SPILLED)


class Phase(StrEnum):
    """Name what the probe was doing when it ended."""

    LOAD = "load"
    FIRST_STEP = "first_step"
    OPTIMIZER_STEP = "optimizer_step"
    STEADY = "steady"
    EVAL = "eval"
    SAVE = "save"
    GENERATE = "generate"


class Ending(Frozen):
    """Say how a probe ended, where, and in whose words.

    Args:
        outcome: the word for it.
        phase: what it was doing.
        reason: one sentence for a person; empty when it fits.
        detail: the original error text or the last lines of its traceback.
        causes: knobs whose choices, together, are known to be the cause; empty when not known.
        transient: whether the fault has nothing to do with the candidate and may be gone next time.
    """

    outcome: Outcome
    phase: Phase
    reason: str = ""
    detail: str = ""
    causes: tuple[str, ...] = ()
    transient: bool = False
