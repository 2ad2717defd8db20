"""How much memory a GPU has for this process, and how much of it others hold already.

The CUDA runtime's total is that of the MIG slice, so it is always the limit; the driver says what
is free without opening a context. Where the driver refuses, the runtime is asked, then the system.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from autotune.core.units import show_bytes
from autotune.probe.meters.driver import Driver, DriverRefused, Identity
from autotune.probe.meters.runtime import CudaRuntime

#: A driver that answers for more than this many times the runtime's total means the whole card.
_WHOLE_CARD = 1.2
#: A device the driver knows but has no memory figure for, and whose memory is this share of the
#: system's or more, but not all of it, shares it (GB10, Jetson).
_SHARED = 0.8


@dataclass(frozen=True)
class Limit:
    """What one process may hope for.

    Args:
        total_bytes: the limit; never 0.
        free_bytes: what nobody holds of it now.
        unified: whether it is shared with the system.
        notice: what is not known here and why, one sentence; empty when everything is.
    """

    total_bytes: int
    free_bytes: int
    unified: bool = False
    notice: str = ""

    @property
    def others_bytes(self) -> int:
        """What others hold of it."""
        return self.total_bytes - self.free_bytes


def limit_of(
    runtime: CudaRuntime, driver: Driver, identity: Identity, system: tuple[int, int]
) -> Limit:
    """Return the limit of a device.

    Args:
        runtime: its CUDA runtime; a context is opened only where the driver refuses.
        driver: the driver library.
        identity: the device's names.
        system: total and available bytes of system memory.
    """
    properties = runtime.properties()
    total = properties.total_bytes or system[0]
    refusal = ""
    handle: object | None = None
    try:
        handle = driver.open(identity)
        memory = driver.memory(handle)
        if memory.total_bytes > _WHOLE_CARD * total:
            refusal = "the driver answered for the whole card, not for this process's slice"
        elif not properties.integrated:
            own = _own(driver, handle) if runtime.is_open() else 0
            return Limit(total, min(memory.free_bytes + own, total))
    except DriverRefused as refused:
        refusal = str(refused)
    shared = handle is not None and _SHARED * system[0] <= total <= system[0]
    if properties.integrated or (refusal and shared):
        # What the runtime calls free leaves out memory the system would give back at once.
        notice = (
            f"{properties.name}: its {show_bytes(total)} are shared with the system, whose "
            "allocations compete: more headroom is kept, and activation_offloading is pointless"
        )
        return Limit(total, min(system[1], total), unified=True, notice=f"{notice}.")
    notice = f"{properties.name}: driver-level memory is unavailable ({refusal})"
    try:
        free, known = runtime.memory()
        return Limit(known or total, min(free, known or total), notice=f"{notice}.")
    except RuntimeError as error:
        why = f"{notice}, and CUDA does not say what is free ({error})"
        return Limit(total, total, notice=f"{why}: all of it is taken to be.")


def _own(driver: Driver, handle: object) -> int:
    """Return what this process holds itself, as far as the driver says; it is nobody else's.

    A process that has not opened the device holds nothing, whatever is listed under its id.
    """
    try:
        return driver.process_bytes(handle).get(os.getpid()) or 0
    except DriverRefused:
        return 0
