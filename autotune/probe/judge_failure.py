"""Judges a probe that failed, by what was raised, where, and in whose words; pure.

Whether it is lack of memory is decided in judge_memory.py.
"""

from __future__ import annotations

import signal

from autotune.core.library_words import bare_words
from autotune.core.outcome import Ending, Outcome
from autotune.core.units import show_bytes
from autotune.probe.error_texts import (
    ATTENTION,
    COMPILER_CACHE,
    DISK_ERRNOS,
    DISK_FULL,
    INVALID_TYPES,
    LIGER,
    MEDIA_CUT,
    NO_GRADIENT,
    OFFLOADING,
    RECOMPUTE,
    REQUESTED,
    TRANSIENT,
    TRANSIENT_ERRNOS,
    UNSCALE,
)
from autotune.probe.judge_memory import exceptions, kinds, memory_in_log, memory_of
from autotune.probe.observed import Observed
from autotune.probe.protocol import Failure, Raised

HOST_FULL = "host memory ran out"
#: Variants of gradient checkpointing, in the words of those who know torch's.
_VARIANTS = {
    "none": "none",
    "full": "full (use_reentrant false)",
    "selective": "selective",
    "reentrant": "reentrant (use_reentrant true)",
}


def judge_failure(seen: Observed, failure: Failure) -> tuple[Ending, int | None]:
    """Return what an exception in the child means.

    Args:
        seen: what was observed.
        failure: the exception.

    Returns:
        The ending, and the least memory it is known to need when it did not fit.
    """
    name = failure.type_name.rpartition(".")[2]
    memory = memory_of(failure, seen.device)
    if memory is not None:
        what = "the device ran out of memory" if memory is Outcome.OOM_DEVICE else HOST_FULL
        cap = f" under the cap of {show_bytes(seen.cap_bytes)}" if seen.cap_bytes else ""
        return Ending(
            outcome=memory,
            phase=failure.phase,
            reason=f"{what}{cap}{seen.when}",
            detail=failure.message or failure.type_name,
        ), needed_bytes(seen, "\n".join(raised.message for raised in exceptions(failure)))
    return _cause(name, seen, failure), None


def _cause(name: str, seen: Observed, failure: Failure) -> Ending:
    """Return the ending of a failure that is not about memory, with the knobs it is known to be of.

    The innermost frames say whose failure it is; the message, what it is.
    """
    said = failure.message.strip()
    message = said.splitlines()[0] if said else name
    where = f"{failure.message}\n{failure.traceback}"

    def invalid(reason: str, *causes: str) -> Ending:
        return Ending(
            outcome=Outcome.INVALID,
            phase=failure.phase,
            reason=reason,
            detail=failure.traceback,
            causes=causes,
        )

    if any(_is_disk(raised) for raised in exceptions(failure)):
        return _crashed(failure, f"the disk is full: {message}")
    if OFFLOADING.search(where):
        return invalid(f"activation_offloading failed: {message}", "activation_offloading")
    if UNSCALE.search(failure.message):
        return invalid(
            "fp16 mixed precision needs trained parameters in fp32 (set dtype=float32): " + message,
            *("dtype", "peft", "quantization"),
        )
    if NO_GRADIENT.search(failure.message):
        return invalid(
            "no gradient reached the adapter or anything else that is trained (gradient "
            "checkpointing with use_reentrant needs inputs that require a gradient)",
            *("gradient_checkpointing", "peft"),
        )
    if RECOMPUTE.search(failure.message) or name == "CheckpointError":
        return invalid(
            f"gradient checkpointing variant {_VARIANTS[seen.checkpointing]} cannot be used with "
            f"this model: recomputed tensors differ ({message})",
            "gradient_checkpointing",
        )
    if MEDIA_CUT.search(failure.message):
        return invalid(f"max_length too short for images: {message}", "max_length")
    if name not in INVALID_TYPES:
        return _crashed(failure, f"{name}: {message}")
    if LIGER.search(where):
        return invalid(message, "use_liger_kernel")
    if ATTENTION.search(failure.message):
        return invalid(message, "attn_implementation")
    return invalid(message)


def _crashed(failure: Failure, reason: str) -> Ending:
    return Ending(
        outcome=Outcome.CRASHED,
        phase=failure.phase,
        reason=reason,
        detail=failure.traceback,
        transient=any(_is_transient(raised) for raised in exceptions(failure)),
    )


def _is_disk(raised: Raised) -> bool:
    if raised.errno is not None:
        return raised.errno in DISK_ERRNOS
    return bool(DISK_FULL.search(bare_words(raised.message)))


def _is_transient(raised: Raised) -> bool:
    """Whether a fault has nothing to do with the candidate and may be gone in the next process."""
    if raised.errno in TRANSIENT_ERRNOS or "ConnectionError" in kinds(raised):
        return True
    if "FileNotFoundError" in kinds(raised):
        return bool(COMPILER_CACHE.search(raised.message))
    return bool(TRANSIENT.search(bare_words(raised.message)))


def judge_silence(seen: Observed) -> tuple[Ending, int | None]:
    """Return what it means that a process ended without an answer: by a signal, or by itself.

    Args:
        seen: what was observed.

    Returns:
        The ending, and the least memory it is known to need when it did not fit.
    """
    name = "" if seen.signal is None else _signal_name(seen.signal)
    memory = memory_in_log(seen.log_tail, seen.device)
    if seen.signal == signal.SIGKILL:
        peak = f" at {show_bytes(seen.peak_rss_bytes)}" if seen.peak_rss_bytes else ""
        outcome = Outcome.OOM_HOST
        reason = (
            f"killed (likely host memory){peak} of {show_bytes(seen.host_total_bytes)}{seen.when}; "
            "activation_offloading and dataloader_num_workers take host memory"
        )
    elif memory is not None:  # an allocator or a kernel's launcher that ends the process
        outcome = memory
        what = "the device ran out of memory" if memory is Outcome.OOM_DEVICE else HOST_FULL
        reason = f"{what}{seen.when} ({name or f'exit code {seen.code}'})"
    elif seen.signal in (signal.SIGINT, signal.SIGTERM):
        outcome, reason = Outcome.INTERRUPTED, f"ended by {name}"
    elif name:
        outcome, reason = Outcome.CRASHED, f"the process died from {name}"
    else:
        outcome = Outcome.CRASHED
        reason = f"the process ended with code {seen.code} and without an answer"
    ending = Ending(
        outcome=outcome,
        phase=seen.last_phase,
        reason=reason,
        detail=seen.log_tail,
        transient=outcome is Outcome.CRASHED and bool(TRANSIENT.search(bare_words(seen.log_tail))),
    )
    return ending, needed_bytes(seen, seen.log_tail) if outcome.is_memory else None


def _signal_name(number: int) -> str:
    """Return a signal's name; those for real-time use have numbers only."""
    return signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"


def needed_bytes(seen: Observed, text: str) -> int | None:
    """Return a lower bound of the memory needed: the cap, plus the request that broke it."""
    match = REQUESTED.search(text)
    requested = int(match.group(1)) if match else 0
    return max(seen.cap_bytes, requested) if seen.cap_bytes is not None else requested or None
