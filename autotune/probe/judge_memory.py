"""Decides whether a failure is lack of memory, and whose: types first, texts last; pure.

An exception's type decides where it can; where it leaves that open, the state of the device and
then the library's own words do. What it quotes (names, paths, keys) decides nothing.
"""

from __future__ import annotations

import builtins
import errno
import re
from collections.abc import Sequence

from autotune.core.library_words import bare_words
from autotune.core.outcome import Outcome
from autotune.probe.error_texts import (
    DEVICE_ALLOCATOR,
    DEVICE_OOM,
    DISK_ERRNOS,
    DISK_FULL,
    ENGINE_OOM,
    HOST_OOM,
    NEVER_MEMORY,
    OFTEN_MEMORY,
    ON_CHIP,
    OS_OUT_OF_MEMORY,
    OUT_OF_MEMORY,
    PINNED,
    PINNING,
    SHARED_MEMORY,
    SOMETIMES_MEMORY,
)
from autotune.probe.protocol import Failure, Raised

#: Lines of a log that say something went wrong; the rest is what a program tells of its work.
_COMPLAINT = re.compile(r"error|fail|abort|terminat|fatal|exception", re.IGNORECASE)


def exceptions(failure: Failure) -> tuple[Raised, ...]:
    """Return the exceptions of a failure, outermost first.

    Args:
        failure: where its chain is not known, as scripted ones are, it is one exception of that
            name; what a builtin derives from is known.
    """
    if failure.chain:
        return failure.chain
    name = failure.type_name
    known = getattr(builtins, name.removeprefix("builtins."), None)
    types = [name]
    if isinstance(known, type):
        types = [f"{k.__module__}.{k.__qualname__}" for k in known.__mro__]
    number = re.match(r"\[Errno (\d+)\]", failure.message)
    return (
        Raised(
            types=tuple(types),
            message=failure.message,
            errno=int(number.group(1)) if number else None,
            frames=tuple(failure.traceback.splitlines()),
        ),
    )


def kinds(raised: Raised) -> tuple[str, ...]:
    """Return the names of an exception's classes without their modules, its own first."""
    return tuple(name.rpartition(".")[2] for name in raised.types)


def memory_of(failure: Failure, device: str) -> Outcome | None:
    """Return which memory has run out behind a failure; None when it is about something else.

    Args:
        failure: its exceptions, and the device's state when they were raised.
        device: ``cpu`` or ``cuda:i``; decides where words do not say whose memory.
    """
    found = (_memory_of(raised, device, failure.device_full) for raised in exceptions(failure))
    return next((outcome for outcome in found if outcome is not None), None)


def _memory_of(raised: Raised, device: str, full: bool | None) -> Outcome | None:
    names = kinds(raised)
    message = ON_CHIP.sub("", raised.message)
    on_chip = message != raised.message
    if "OutOfMemoryError" in names and not on_chip:
        return Outcome.OOM_DEVICE
    if any(name.endswith("MemoryError") and name != "OutOfMemoryError" for name in names):
        return Outcome.OOM_HOST
    if "OSError" in names:
        return _memory_of_system(raised)
    if "ValueError" in names and ENGINE_OOM.search(message):
        return Outcome.OOM_DEVICE
    if NEVER_MEMORY & set(names):
        return None
    if OFTEN_MEMORY.search(message):
        return None if full is False else Outcome.OOM_DEVICE
    if SOMETIMES_MEMORY.search(message) and full:
        return Outcome.OOM_DEVICE
    words = bare_words(message)
    if DISK_FULL.search(words) and SHARED_MEMORY.search(message):
        return Outcome.OOM_HOST
    return memory_in_words(words, device, raised.frames)


def _memory_of_system(raised: Raised) -> Outcome | None:
    """Judge an exception of the operating system: by its number, where it has one."""
    if raised.errno in DISK_ERRNOS and SHARED_MEMORY.search(raised.message):
        return Outcome.OOM_HOST
    if raised.errno is not None:
        return Outcome.OOM_HOST if raised.errno == errno.ENOMEM else None
    return Outcome.OOM_HOST if OS_OUT_OF_MEMORY.search(raised.message) else None


def memory_in_words(words: str, device: str, frames: Sequence[str] = ()) -> Outcome | None:
    """Return which memory a library says has run out; None when it says nothing of memory.

    Args:
        words: its own words (`bare_words`).
        device: ``cpu`` or ``cuda:i``; decides where the words do not say whose memory.
        frames: where it was raised: pinned memory is the host's, whatever the words.
    """
    if DEVICE_OOM.search(words):
        pins = PINNED.search(words) or any(PINNING.search(frame) for frame in frames)
        pinned = pins and not DEVICE_ALLOCATOR.search(words)
        return Outcome.OOM_HOST if pinned else Outcome.OOM_DEVICE
    if HOST_OOM.search(words):
        return Outcome.OOM_HOST
    if OUT_OF_MEMORY.search(words):
        return Outcome.OOM_HOST if device == "cpu" else Outcome.OOM_DEVICE
    return None


def memory_in_log(log_tail: str, device: str) -> Outcome | None:
    """Return which memory the last words of a process that ended without an answer are about.

    Args:
        log_tail: last lines of its output.
        device: ``cpu`` or ``cuda:i``.
    """
    complaints = [line for line in log_tail.splitlines() if _COMPLAINT.search(line)]
    words = ON_CHIP.sub("", bare_words(log_tail))
    if DEVICE_OOM.search(words) or HOST_OOM.search(words):
        return memory_in_words(words, device)
    return memory_in_words(ON_CHIP.sub("", bare_words("\n".join(complaints))), device)
