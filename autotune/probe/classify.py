"""Decides how a probe ended, from what was observed; pure, and the only place that decides it.

What a text means is judged in judge_failure.py, what a finished run means in judge_run.py; what a
second look at the same candidate changes is decided here.
"""

from __future__ import annotations

import math

from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.units import show_bytes, show_duration
from autotune.probe.judge_failure import judge_failure, judge_silence
from autotune.probe.judge_run import judge_run
from autotune.probe.observed import IDLE_S, Observed

#: A crash is put down to the cap when the candidate needs at least this share of it.
_NEAR = 0.9


def classify(seen: Observed) -> tuple[Ending, int | None]:
    """Return how the probe ended and the least memory it is known to need, when it did not fit.

    Args:
        seen: what was observed.
    """
    ending, needed = _classify(seen)
    if ending.outcome.is_memory and seen.surplus_bytes:
        # Not the candidate's fault: it may fit once the device is free again.
        reason = f"{show_bytes(seen.surplus_bytes)} of the device were still held at the start"
        return ending.model_copy(
            update={"outcome": Outcome.POLLUTED, "reason": f"{reason}: {ending.reason}"}
        ), None
    return ending, needed


def _classify(seen: Observed) -> tuple[Ending, int | None]:
    if seen.timed_out:  # what its libraries said last has nothing to do with it
        if math.isinf(seen.deadline_s):
            outcome = Outcome.CRASHED
            reason = f"it hung: no processor time was used for {show_duration(IDLE_S)}"
        else:
            outcome = Outcome.TIMEOUT
            reason = f"it did not end within {show_duration(seen.deadline_s)}"
        return Ending(outcome=outcome, phase=seen.last_phase, reason=reason + seen.when), None
    if seen.failure is not None:
        return judge_failure(seen, seen.failure)
    if seen.signal is not None or seen.measurement is None:
        return judge_silence(seen)
    return judge_run(seen.measurement, seen)


def is_transient(report: ProbeReport) -> bool:
    """Whether a probe met a fault that has nothing to do with its candidate and may be gone.

    Args:
        report: a probe that ended; one that is retried is retried once.
    """
    return report.ending.outcome is Outcome.CRASHED and report.ending.transient


def is_near(report: ProbeReport, cap_bytes: int) -> bool:
    """Whether a probe that ran without its cap needs nearly as much as the cap, or more."""
    measured = report.measurement
    peak = measured.peaks.deciding_bytes if measured is not None else None
    return report.ending.outcome is Outcome.FITS and peak is not None and peak >= _NEAR * cap_bytes


def starved(crashed: ProbeReport, uncapped: ProbeReport, cap_bytes: int) -> ProbeReport:
    """Return what a crash under a cap was, once the same candidate was run without it.

    Args:
        crashed: the crash.
        uncapped: the same candidate with all the device's free memory.
        cap_bytes: the cap it crashed under.
    """
    if uncapped.ending.outcome.is_memory:  # all there is was not enough: now it says so itself
        reason = f"{uncapped.ending.reason} ({crashed.ending.reason})"
        return crashed.model_copy(
            update={
                "ending": uncapped.ending.model_copy(update={"reason": reason}),
                "needed_bytes": max(uncapped.needed_bytes or 0, cap_bytes),
            }
        )
    measured = uncapped.measurement
    peak = measured.peaks.deciding_bytes if measured is not None else None
    if not is_near(uncapped, cap_bytes) or measured is None or peak is None:
        return crashed
    on_device = measured.peaks.reserved_bytes is not None
    what = "device" if on_device else "host"
    ending = crashed.ending.model_copy(
        update={
            "outcome": Outcome.OOM_DEVICE if on_device else Outcome.OOM_HOST,
            "reason": f"{what} memory ran out under the cap of {show_bytes(cap_bytes)}: it needs "
            f"{show_bytes(peak)} ({crashed.ending.reason})",
        }
    )
    return crashed.model_copy(update={"ending": ending, "needed_bytes": max(peak, cap_bytes)})


def mixing_refused(report: ProbeReport) -> ProbeReport:
    """Return a report as invalid when flattened documents were seen to attend to each other.

    Args:
        report: a probe of a job that does not allow documents to mix.
    """
    measured = report.measurement
    if measured is None or not measured.documents_mix:
        return report
    attention = measured.effective.get("attn_implementation")
    reason = (
        f"documents in one row see each other (this model with attention {attention}): changing "
        "one changes what is predicted in the next (--allow mixing accepts that)"
    )
    ending = Ending(outcome=Outcome.INVALID, phase=Phase.LOAD, reason=reason)
    return report.model_copy(update={"ending": ending})
