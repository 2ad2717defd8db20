"""Decides how a probe ended, from what was observed; pure, and the only place that decides it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.measurement import Measurement, ProbeReport, Step
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.time_model import FloatArray, fit
from autotune.core.units import show_bytes, show_duration
from autotune.probe.error_texts import (
    DEVICE_OOM,
    DISK_FULL,
    HOST_OOM,
    INVALID_TYPES,
    NO_GRADIENT,
    OFFLOADING,
    RECOMPUTE,
    REQUESTED,
    UNSCALE,
)
from autotune.probe.protocol import Failure

#: A step this much slower than others of its shape did not run in device memory (DESIGN.md 5.3).
SPILL_SLOWDOWN = 10.0
#: A crash is put down to the cap when the candidate needs at least this share of it.
_NEAR = 0.9
#: Updates of a verification that allocate optimizer states and caches and are not compared; then
#: the last window's highest peak may be this much above the first's (DESIGN.md 5.9).
_WARM_UP_UPDATES = 2
_WINDOW_UPDATES = 5
_GROWTH_RATIO = 0.005


@dataclass(frozen=True)
class Observed:
    """Everything seen of a probe that ended.

    Args:
        failure: the exception in the child, if it reported one.
        measurement: what it had measured.
        code: exit code; negative is a signal.
        timed_out: whether the deadline ended it.
        deadline_s: the deadline.
        peak_rss_bytes: highest resident memory seen by the parent.
        host_total_bytes: the machine's memory.
        cap_bytes: the enforced cap.
        device: ``cpu`` or ``cuda:i``.
        log_tail: last lines of its output.
        device_total_bytes: memory of the device, if known.
        surplus_bytes: what others held of the device at the start beyond what they held before
            the search; None where nobody looked.
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
    surplus_bytes: int | None = None

    @property
    def signal(self) -> int | None:
        """The signal that ended it; shells and wrappers report one as 128 plus its number."""
        number = -self.code if self.code < 0 else self.code - 128
        return number if number in signal.valid_signals() else None


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


def spilled_by_time(measurement: Measurement, others: Sequence[Measurement]) -> Ending | None:
    """Return a `spilled` ending when steps are far slower than others of their shape, else None.

    A driver that pages to host memory raises nothing; only time shows it. The times of the other
    measurements, together, say what steps of these shapes take.

    Args:
        measurement: a probe that ran to its end.
        others: probes of other candidates that fit; fewer than two say nothing.
    """
    known = [step for other in others for step in other.timed_steps]
    mine = measurement.timed_steps
    if len(others) < 2 or not mine:
        return None
    seconds, tokens, width = _columns(known)
    expected = fit(seconds, tokens, width).seconds(*_columns(mine)[1:])
    ratio = float(np.median(_columns(mine)[0] / np.maximum(expected, 1e-9)))
    if ratio <= SPILL_SLOWDOWN:
        return None
    return Ending(
        outcome=Outcome.SPILLED,
        phase=Phase.STEADY,
        reason=f"its steps took {ratio:.0f} times as long as others of their shape: "
        "the driver seems to page to host memory",
    )


def _columns(steps: Sequence[Step]) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (
        np.asarray([s.seconds for s in steps], dtype=np.float64),
        np.asarray([s.padded_tokens for s in steps], dtype=np.float64),
        np.asarray([s.width for s in steps], dtype=np.float64),
    )


def _classify(seen: Observed) -> tuple[Ending, int | None]:
    if seen.timed_out:
        reason = f"it did not end within {show_duration(seen.deadline_s)}"
        return Ending(
            outcome=Outcome.TIMEOUT, phase=_phase(seen), reason=reason, detail=seen.log_tail
        ), None
    if seen.failure is not None:
        return _failed(seen, seen.failure)
    if seen.signal is not None:
        return _killed(seen, seen.signal)
    if seen.measurement is None:
        reason = f"the process ended with code {seen.code} and without an answer"
        if HOST_OOM.search(seen.log_tail):
            return _host(seen, Phase.LOAD, "host memory ran out", seen.log_tail)
        return Ending(
            outcome=Outcome.CRASHED, phase=Phase.LOAD, reason=reason, detail=seen.log_tail
        ), None
    return _ran(seen.measurement, seen)


def starved(crashed: ProbeReport, uncapped: ProbeReport, cap_bytes: int) -> ProbeReport:
    """Return what a crash under a cap was, once the same candidate was run without it.

    Args:
        crashed: the crash.
        uncapped: the same candidate with all the device's free memory.
        cap_bytes: the cap it crashed under.
    """
    measured = uncapped.measurement
    peak = measured.peaks.deciding_bytes if measured is not None else None
    if uncapped.ending.outcome is not Outcome.FITS or peak is None or peak < _NEAR * cap_bytes:
        return crashed
    on_device = measured is not None and measured.peaks.reserved_bytes is not None
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


def _phase(seen: Observed) -> Phase:
    return seen.failure.phase if seen.failure else Phase.STEADY if seen.measurement else Phase.LOAD


def _failed(seen: Observed, failure: Failure) -> tuple[Ending, int | None]:
    text = f"{failure.type_name}: {failure.message}"
    name = failure.type_name.rpartition(".")[2]
    if name == "OutOfMemoryError" or DEVICE_OOM.search(text):
        cap = f" under the cap of {show_bytes(seen.cap_bytes)}" if seen.cap_bytes else ""
        return Ending(
            outcome=Outcome.OOM_DEVICE,
            phase=failure.phase,
            reason=f"the device ran out of memory{cap}{_when(failure)}",
            detail=failure.message,
        ), _needed(seen, text)
    if name == "MemoryError" or HOST_OOM.search(text):
        cap = f" under the cap of {show_bytes(seen.cap_bytes)}" if seen.cap_bytes else ""
        return _host(seen, failure.phase, f"host memory ran out{cap}{_when(failure)}", text)
    outcome, reason = _cause(name, failure)
    return Ending(
        outcome=outcome, phase=failure.phase, reason=reason, detail=failure.traceback
    ), None


def _when(failure: Failure) -> str:
    return f" after {failure.step} micro-steps" if failure.step else ""


def _cause(name: str, failure: Failure) -> tuple[Outcome, str]:
    """Return the outcome and the sentence for a failure that is not about memory."""
    message = failure.message.strip().splitlines()[0] if failure.message.strip() else name
    if DISK_FULL.search(failure.message):
        return Outcome.CRASHED, f"the disk is full: {message}"
    if OFFLOADING.search(f"{failure.message}\n{failure.traceback}"):
        return Outcome.INVALID, f"activation_offloading failed: {message}"
    if UNSCALE.search(failure.message):
        return Outcome.INVALID, (
            "fp16 mixed precision needs trained parameters in fp32 (set dtype=float32): " + message
        )
    if NO_GRADIENT.search(failure.message):
        return Outcome.INVALID, (
            "no gradient reached the adapter or anything else that is trained (gradient "
            "checkpointing with use_reentrant needs inputs that require a gradient)"
        )
    if RECOMPUTE.search(failure.message) or name == "CheckpointError":
        return Outcome.INVALID, (
            "this variant of gradient checkpointing cannot be used with this model: "
            f"recomputed tensors differ ({message})"
        )
    if name in INVALID_TYPES:
        return Outcome.INVALID, message
    return Outcome.CRASHED, f"{name}: {message}"


def _killed(seen: Observed, number: int) -> tuple[Ending, int | None]:
    name = signal.Signals(number).name
    if number == signal.SIGKILL:
        peak = f" at {show_bytes(seen.peak_rss_bytes)}" if seen.peak_rss_bytes else ""
        reason = f"killed (likely host memory){peak} of {show_bytes(seen.host_total_bytes)}"
        return _host(seen, _phase(seen), reason, seen.log_tail)
    if HOST_OOM.search(seen.log_tail):  # an allocator that aborts the process
        return _host(seen, _phase(seen), f"host memory ran out ({name})", seen.log_tail)
    if number in (signal.SIGINT, signal.SIGTERM):
        outcome, reason = Outcome.INTERRUPTED, f"ended by {name}"
    else:
        outcome, reason = Outcome.CRASHED, f"the process died from {name}"
    return Ending(outcome=outcome, phase=_phase(seen), reason=reason, detail=seen.log_tail), None


def _host(seen: Observed, phase: Phase, reason: str, detail: str) -> tuple[Ending, int | None]:
    ending = Ending(outcome=Outcome.OOM_HOST, phase=phase, reason=reason, detail=detail)
    return ending, _needed(seen, detail)


def _needed(seen: Observed, text: str) -> int | None:
    """Return a lower bound of the memory needed: the cap, plus the request that broke it."""
    match = REQUESTED.search(text)
    requested = int(match.group(1)) if match else 0
    return max(seen.cap_bytes, requested) if seen.cap_bytes is not None else requested or None


def _ran(measurement: Measurement, seen: Observed) -> tuple[Ending, int | None]:
    """Judge a probe that ran to its end: it must really have trained (DESIGN.md 5.12)."""
    total_bytes = seen.device_total_bytes
    steps = [*measurement.memory_steps, *measurement.timed_steps]
    if not measurement.memory_steps:
        return _nothing("no step was run"), None
    peak = measurement.peaks.deciding_bytes
    if total_bytes is not None and peak is not None and peak > total_bytes:
        reason = f"its peak of {show_bytes(peak)} is above the device's {show_bytes(total_bytes)}"
        return Ending(outcome=Outcome.SPILLED, phase=Phase.STEADY, reason=reason), peak
    cap = None if seen.device == "cpu" else seen.cap_bytes
    if cap is not None and peak is not None and peak > cap:
        # The cap holds torch's allocator; what kernels and libraries take beside it shows here.
        reason = f"it needs {show_bytes(peak)}, more than the cap of {show_bytes(cap)}"
        return Ending(outcome=Outcome.OOM_DEVICE, phase=Phase.STEADY, reason=reason), peak
    if any(step.loss is None for step in steps) or None in measurement.grad_norms:
        return Ending(
            outcome=Outcome.NON_FINITE,
            phase=Phase.STEADY,
            reason="the loss or the gradient norm was not finite",
        ), None
    if all(step.label_tokens == 0 for step in steps):
        return _nothing("no token was trained on: every label is masked"), None
    if measurement.grad_norms and max(n or 0.0 for n in measurement.grad_norms) == 0.0:
        return _nothing("the gradient norm was zero at every update: nothing is trained"), None
    if measurement.trained_modules == len(measurement.unreached_modules):
        return _nothing("no gradient reached any trained module: nothing is trained"), None
    growing = _growing(measurement.update_peaks_bytes)
    if growing:
        return _nothing(growing), None
    return Ending(outcome=Outcome.FITS, phase=Phase.STEADY), None


def _growing(peaks_bytes: tuple[int, ...]) -> str:
    """Say that memory still grows from update to update; empty when it does not (DESIGN.md 5.9).

    Args:
        peaks_bytes: peak of every update of a verification; fewer than twelve say nothing.
    """
    if len(peaks_bytes) < _WARM_UP_UPDATES + 2 * _WINDOW_UPDATES:
        return ""
    settled = peaks_bytes[_WARM_UP_UPDATES:]
    first, last = max(settled[:_WINDOW_UPDATES]), max(settled[-_WINDOW_UPDATES:])
    if last <= first * (1.0 + _GROWTH_RATIO):
        return ""
    return (
        f"memory is still growing after {len(peaks_bytes)} updates: from {show_bytes(first)} to "
        f"{show_bytes(last)}, so it is not safe for a whole run"
    )


def _nothing(reason: str) -> Ending:
    return Ending(outcome=Outcome.INVALID, phase=Phase.STEADY, reason=reason)
