"""What the parent saw of a probe that ended; classify.py says what it means."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from autotune.core.measurement import Measurement
from autotune.core.outcome import Phase
from autotune.probe.protocol import Failure

#: A process without a deadline is ended when it uses no processor time for so long: it hangs.
IDLE_S = 600.0


@dataclass(frozen=True)
class Observed:
    """Everything seen of a probe that ended.

    Args:
        failure: the exception in the child, if it reported one.
        measurement: what it had measured.
        code: exit code; negative is a signal.
        timed_out: whether the deadline ended it, or (where that is infinite) its idleness.
        deadline_s: the deadline.
        peak_rss_bytes: highest resident memory seen by the parent.
        host_total_bytes: the machine's memory.
        cap_bytes: the enforced cap.
        device: ``cpu`` or ``cuda:i``.
        log_tail: last lines of its output.
        device_total_bytes: memory of the device, if known.
        device_free_bytes: what nobody held of it when the probe started, if known.
        budget_bytes: what the job may use of the device, headroom included; None if unknown.
        surplus_bytes: what others held of the device at the start beyond what they held before
            the search, where that left too little; None where it did not, or nobody looked.
        phase: the phase it told of last; None when it told of none.
        step: micro-steps it had finished then.
        checkpointing: the variant of gradient checkpointing it was asked for, as the knob names it.
    """

    failure: Failure | None
    measurement: Measurement | None
    code: int
    timed_out: bool
    deadline_s: float
    peak_rss_bytes: int | None
    host_total_bytes: int
    cap_bytes: int | None
    device: str
    log_tail: str = ""
    device_total_bytes: int | None = None
    device_free_bytes: int | None = None
    budget_bytes: int | None = None
    surplus_bytes: int | None = None
    phase: Phase | None = None
    step: int = 0
    checkpointing: str = "full"

    @property
    def signal(self) -> int | None:
        """The signal that ended it; shells and wrappers report one as 128 plus its number."""
        number = -self.code if self.code < 0 else self.code - 128
        return number if number in signal.valid_signals() else None

    @property
    def last_phase(self) -> Phase:
        """What it was doing last: in its own words, else as far as it is known to have come."""
        if self.failure is not None:
            return self.failure.phase
        if self.phase is not None:
            return self.phase
        return Phase.STEADY if self.measurement is not None else Phase.LOAD

    @property
    def when(self) -> str:
        """How far it had come, as the end of a sentence; empty when it finished no step."""
        step = self.failure.step if self.failure is not None else self.step
        return f" after {step} micro-steps" if step else ""
