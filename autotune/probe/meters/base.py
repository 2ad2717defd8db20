"""What a memory meter is: start before anything is built, reset between phases, read peaks."""

from __future__ import annotations

from typing import Protocol

from autotune.core.device_state import DeviceState
from autotune.core.memory import Peaks


class Meter(Protocol):
    """Read peak memory of the calling process on one kind of device."""

    def reset(self) -> None:
        """Forget the peak so far; the next `read` covers only what follows."""

    def read(self) -> Peaks:
        """Return the peaks since the last reset, above what was held at the start."""

    def lap(self) -> int | None:
        """Return the peak since the last lap or reset, above the start; None if unknown.

        It is of what follows steps closest: the process on a CPU, torch's allocator on a GPU. The
        next `read` covers laps too.
        """

    def state(self) -> DeviceState | None:
        """Return what the device did since this was last asked; None where it has no clocks."""


class Cap(Protocol):
    """Hold the process to a number of bytes above what it held when the cap was made."""

    def enforce(self, budget_bytes: int) -> None:
        """Make allocations beyond the budget fail from now on."""

    def lift(self) -> None:
        """Let the process allocate freely again."""
