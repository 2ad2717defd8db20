"""Decides how a probe ended, from what was observed; pure, and the only place that decides it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from autotune.core.measurement import Measurement
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.units import show_bytes, show_duration
from autotune.probe.protocol import Failure

#: Texts of a device allocator that is out of memory, in its many disguises.
_DEVICE_OOM = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|HIP out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOC"
    r"|cudaErrorMemoryAllocation|NCCL.{0,40}out of memory|Tried to allocate .* GPU",
    re.IGNORECASE,
)
#: Texts of a host allocator that is out of memory.
_HOST_OOM = re.compile(
    r"DefaultCPUAllocator: (can't|not enough)|not enough memory: you tried to allocate"
    r"|Cannot allocate memory|std::bad_alloc|ArrayMemoryError|Unable to allocate|errno 12"
    r"|can't start new thread|malloc of size|realloc of size",
    re.IGNORECASE,
)
_REQUESTED = re.compile(r"you tried to allocate (\d+) bytes", re.IGNORECASE)
_NO_GRADIENT = re.compile(r"does not require grad and does not have a grad_fn", re.IGNORECASE)
_RECOMPUTE = re.compile(r"Recomputed values for the following tensors|CheckpointError")
_DISK_FULL = re.compile(r"No space left on device|errno 28", re.IGNORECASE)
_INVALID_TYPES = ("ValueError", "TypeError", "ImportError", "ModuleNotFoundError", "BadInput")


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


def classify(seen: Observed) -> tuple[Ending, int | None]:
    """Return how the probe ended and the least memory it is known to need, when it did not fit.

    Args:
        seen: what was observed.
    """
    if seen.timed_out:
        reason = f"it did not end within {show_duration(seen.deadline_s)}"
        return Ending(
            outcome=Outcome.TIMEOUT, phase=_phase(seen), reason=reason, detail=seen.log_tail
        ), None
    if seen.failure is not None:
        return _failed(seen, seen.failure)
    if seen.code < 0:
        return _killed(seen)
    if seen.measurement is None:
        reason = f"the process ended with code {seen.code} and without an answer"
        if _HOST_OOM.search(seen.log_tail):
            return _host(seen, Phase.LOAD, "host memory ran out", seen.log_tail)
        return Ending(
            outcome=Outcome.CRASHED, phase=Phase.LOAD, reason=reason, detail=seen.log_tail
        ), None
    return _ran(seen.measurement), None


def _phase(seen: Observed) -> Phase:
    return seen.failure.phase if seen.failure else Phase.STEADY if seen.measurement else Phase.LOAD


def _failed(seen: Observed, failure: Failure) -> tuple[Ending, int | None]:
    text = f"{failure.type_name}: {failure.message}"
    name = failure.type_name.rpartition(".")[2]
    if name == "OutOfMemoryError" or _DEVICE_OOM.search(text):
        cap = f" under the cap of {show_bytes(seen.cap_bytes)}" if seen.cap_bytes else ""
        return Ending(
            outcome=Outcome.OOM_DEVICE,
            phase=failure.phase,
            reason=f"the device ran out of memory{cap}",
            detail=failure.message,
        ), _needed(seen, text)
    if name == "MemoryError" or _HOST_OOM.search(text):
        cap = f" under the cap of {show_bytes(seen.cap_bytes)}" if seen.cap_bytes else ""
        return _host(seen, failure.phase, f"host memory ran out{cap}", failure.message)
    outcome, reason = _cause(name, failure)
    return Ending(
        outcome=outcome, phase=failure.phase, reason=reason, detail=failure.traceback
    ), None


def _cause(name: str, failure: Failure) -> tuple[Outcome, str]:
    """Return the outcome and the sentence for a failure that is not about memory."""
    message = failure.message.strip().splitlines()[0] if failure.message.strip() else name
    if _DISK_FULL.search(failure.message):
        return Outcome.CRASHED, f"the disk is full: {message}"
    if _NO_GRADIENT.search(failure.message):
        return Outcome.INVALID, (
            "no gradient reached the trained parameters (with PEFT and gradient checkpointing: "
            "use_reentrant needs inputs that require a gradient)"
        )
    if _RECOMPUTE.search(failure.message) or name == "CheckpointError":
        return Outcome.INVALID, (
            "this variant of gradient checkpointing cannot be used with this model: "
            f"recomputed tensors differ ({message})"
        )
    if name in _INVALID_TYPES:
        return Outcome.INVALID, message
    return Outcome.CRASHED, f"{name}: {message}"


def _killed(seen: Observed) -> tuple[Ending, int | None]:
    name = signal.Signals(-seen.code).name
    if -seen.code == signal.SIGKILL:
        peak = f" at {show_bytes(seen.peak_rss_bytes)}" if seen.peak_rss_bytes else ""
        return _host(
            seen,
            Phase.STEADY if seen.measurement else Phase.LOAD,
            f"killed (likely host memory){peak} of {show_bytes(seen.host_total_bytes)}",
            seen.log_tail,
        )
    if -seen.code in (signal.SIGINT, signal.SIGTERM):
        outcome, reason = Outcome.INTERRUPTED, f"ended by {name}"
    else:
        outcome, reason = Outcome.CRASHED, f"the process died from {name}"
    return Ending(outcome=outcome, phase=_phase(seen), reason=reason, detail=seen.log_tail), None


def _host(seen: Observed, phase: Phase, reason: str, detail: str) -> tuple[Ending, int | None]:
    ending = Ending(outcome=Outcome.OOM_HOST, phase=phase, reason=reason, detail=detail)
    return ending, _needed(seen, detail)


def _needed(seen: Observed, text: str) -> int | None:
    """Return a lower bound of the memory needed: the cap, plus the request that broke it."""
    match = _REQUESTED.search(text)
    requested = int(match.group(1)) if match else 0
    return max(seen.cap_bytes, requested) if seen.cap_bytes is not None else requested or None


def _ran(measurement: Measurement) -> Ending:
    """Judge a probe that ran to its end: it must really have trained (DESIGN.md 5.12)."""
    steps = [*measurement.memory_steps, *measurement.timed_steps]
    if not measurement.memory_steps:
        return _nothing("no step was run")
    if any(step.loss is None for step in steps) or None in measurement.grad_norms:
        return Ending(
            outcome=Outcome.NON_FINITE,
            phase=Phase.STEADY,
            reason="the loss or the gradient norm was not finite",
        )
    if all(step.label_tokens == 0 for step in steps):
        return _nothing("no token was trained on: every label is masked")
    if measurement.grad_norms and max(n or 0.0 for n in measurement.grad_norms) == 0.0:
        return _nothing("the gradient norm was zero at every update: nothing is trained")
    return Ending(outcome=Outcome.FITS, phase=Phase.STEADY)


def _nothing(reason: str) -> Ending:
    return Ending(outcome=Outcome.INVALID, phase=Phase.STEADY, reason=reason)
