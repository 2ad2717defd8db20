"""Writes down an exception of the measuring process: its types, its words, where it was raised.

What it means is judged by the parent (judge_failure.py); nothing here looks at a text.
"""

from __future__ import annotations

import sys
import traceback

from autotune.core.errors import AutotuneError, BadInput, EnvironmentUnable
from autotune.core.outcome import Phase
from autotune.probe.protocol import Failure, Raised

_TRACEBACK_CHARS = 6000
#: Innermost frames of an exception that show which function asked for what it did not get.
_FRAMES = 8
#: An allocator that holds this share of what it may, or a device of which this share is taken, is
#: full: the next request fails.
_FULL = 0.95
#: Longest chain that is followed; libraries wrap an exception a few times.
_CHAIN = 10


def failure_of(error: Exception, phase: Phase, step: int) -> Failure:
    """Return an exception as the parent is told of it, and print its traceback to the log.

    Args:
        error: what is reported: the exception being handled, or what is said in its place.
        phase: what was being done.
        step: micro-steps finished before it.
    """
    text = traceback.format_exc()
    print(text, file=sys.stderr)
    return Failure(
        type_name=_name(type(error)),
        message=error.message if isinstance(error, AutotuneError) else str(error),
        traceback=text[-_TRACEBACK_CHARS:],
        chain=_chain(error),
        phase=phase,
        user_error=isinstance(error, BadInput),
        unable=isinstance(error, EnvironmentUnable),
        hint=error.hint if isinstance(error, AutotuneError) else None,
        step=step,
        device_full=_device_full(),
    )


def _chain(error: BaseException) -> tuple[Raised, ...]:
    """Return the exception and what is behind it, as Python would print them."""
    found: list[Raised] = []
    behind: BaseException | None = error
    while behind is not None and len(found) < _CHAIN:
        frames = traceback.extract_tb(behind.__traceback__)[-_FRAMES:]
        number = behind.errno if isinstance(behind, OSError) else None
        found.append(
            Raised(
                types=tuple(_name(kind) for kind in type(behind).__mro__ if _is_telling(kind)),
                message=str(behind),
                errno=number if type(number) is int else None,
                frames=tuple(f"{frame.filename}:{frame.name}" for frame in frames),
            )
        )
        behind = behind.__cause__ or (None if behind.__suppress_context__ else behind.__context__)
    return tuple(found)


def _is_telling(kind: type) -> bool:
    return kind not in (object, BaseException)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _device_full() -> bool | None:
    """Return whether the device's allocator is at its limit; None where no device is open.

    A device that an error has broken answers nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        limit_bytes = total_bytes * torch.cuda.get_per_process_memory_fraction()
        reserved_bytes = torch.cuda.memory_reserved()
    except RuntimeError:
        return None
    return bool(reserved_bytes >= _FULL * limit_bytes or free_bytes <= (1 - _FULL) * total_bytes)
