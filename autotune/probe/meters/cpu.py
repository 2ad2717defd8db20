"""Peak memory and its cap on the CPU, read from the kernel.

The process peak is ``VmHWM`` after a reset through ``/proc/self/clear_refs`` minus the resident
size at the start, while the heap keeps nothing (heap.py); ``ru_maxrss`` cannot be reset and is
never used. The cap is ``RLIMIT_DATA`` at the data size of the start plus the budget: an
address-space limit hangs or lies (DESIGN.md 5.3).
Linux only; elsewhere the numbers are absent with that reason.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from autotune.core.memory import Peaks

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_NOT_CPU = "a CUDA number; this probe ran on the CPU"


def status_bytes(field: str) -> int:
    """Read one field of ``/proc/self/status`` (``VmRSS``, ``VmHWM``, ``VmData``) in bytes."""
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {field}")


class CpuMeter:
    """Read the high-water mark of this process's resident memory."""

    def __init__(self) -> None:
        """Remember what the process holds before the model is built."""
        self._start_bytes = status_bytes("VmRSS")
        self._laps_bytes = 0
        self.reset()

    def reset(self) -> None:
        """Set the high-water mark to what is resident now."""
        self._laps_bytes = 0
        _CLEAR.write_text("5", encoding="ascii")

    def lap(self) -> int:
        """Return the process peak since the last lap or reset, above the start."""
        peak_bytes = status_bytes("VmHWM")
        self._laps_bytes = max(self._laps_bytes, peak_bytes)
        _CLEAR.write_text("5", encoding="ascii")
        return max(0, peak_bytes - self._start_bytes)

    def read(self) -> Peaks:
        """Return the process peak since the last reset, above the start."""
        peak_bytes = max(self._laps_bytes, status_bytes("VmHWM"))
        return Peaks(
            process_bytes=max(0, peak_bytes - self._start_bytes),
            absent={
                "allocated": "counted in a pass of its own, see AllocatorWatch",
                "reserved": _NOT_CPU,
                "device_used": _NOT_CPU,
            },
        )

    def state(self) -> None:
        """Return nothing: clocks of a CPU change core by core and say little of a step."""


class CpuCap:
    """Hold the process to a budget through ``RLIMIT_DATA``."""

    def __init__(self) -> None:
        """Remember the data size before the model is built, and the user's own limit."""
        self._start_bytes = status_bytes("VmData")
        self._before = resource.getrlimit(resource.RLIMIT_DATA)

    def enforce(self, budget_bytes: int) -> None:
        """Make private memory beyond the budget fail to be mapped."""
        limit = self._start_bytes + budget_bytes
        if self._before[0] != resource.RLIM_INFINITY:
            limit = min(limit, self._before[0])
        resource.setrlimit(resource.RLIMIT_DATA, (limit, self._before[1]))

    def lift(self) -> None:
        """Restore the limit the process was born with."""
        resource.setrlimit(resource.RLIMIT_DATA, self._before)


class AllocatorWatch:
    """Follow the live bytes of torch's CPU allocator through the profiler's memory events.

    Every allocation and release of the CPU allocator is an event with its size in bytes, so the
    peak is exact and repeatable, unlike resident pages.
    """

    def __init__(self, held: list[Any], kept_bytes: int = 0) -> None:
        """Start watching.

        Args:
            held: tensors alive at the start; each storage is counted once.
            kept_bytes: what else is known to be alive: all of it, where a watch ended just before.
        """
        import torch
        from torch.autograd import profiler

        self.live_bytes = 0
        self._base_bytes = kept_bytes
        seen: set[int] = set()
        for tensor in held:
            storage = tensor.untyped_storage()
            if isinstance(tensor, torch.Tensor) and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                self._base_bytes += storage.nbytes()
        make: Any = profiler.profile
        self._profile = make(profile_memory=True)
        self._profile.__enter__()

    def stop(self) -> int:
        """Stop watching and return the peak in bytes, what was held at the start included."""
        self._profile.__exit__(None, None, None)
        results = self._profile.kineto_results
        events = [
            (event.start_ns(), event.nbytes())
            for event in results.events()
            if event.name() == "[memory]" and str(event.device_type()).endswith("CPU")
        ]
        live = peak = 0
        for _, size in sorted(events, key=lambda e: e[0]):
            live += size
            peak = max(peak, live)
        self.live_bytes = self._base_bytes + live
        return self._base_bytes + peak
