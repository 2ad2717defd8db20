"""Is the device as free as it was before the search? Asked by the parent before every probe.

Memory of a process that ended comes back within a second or so; what does not come back belongs
to somebody else, and a probe that then runs out of memory says nothing about its candidate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.environment import Device
from autotune.probe.meters.driver import Driver, DriverRefused, Identity

_WAIT_SECONDS = 0.25
_MOST_WAITS = 40
#: Share of the device by which what others hold may change unnoticed: displays and daemons do.
_TOLERANCE = 0.01


@dataclass(frozen=True)
class Start:
    """What a probe finds when it starts.

    Args:
        free_bytes: what nobody holds of the device; None where the driver does not say.
        surplus_bytes: what others hold beyond what they held before the search, where that leaves
            less than the probe may use; None otherwise.
    """

    free_bytes: int | None = None
    surplus_bytes: int | None = None


class Baseline:
    """Wait, with a limit, until the device is as free as before the search."""

    def __init__(
        self, device: Device, driver: Driver, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """Take the device as it was before the search.

        Args:
            device: what was found of it then.
            driver: the driver library; asks without opening CUDA.
            wait: lets time pass.
        """
        self._before = device.free_bytes
        self._expected = device.free_bytes
        self._slack = int(_TOLERANCE * device.total_bytes)
        self._driver = driver
        self._wait = wait
        self._identity = Identity.of(
            device.uuid,
            device.pci_bus_id,
            os.environ.get("CUDA_VISIBLE_DEVICES"),
            device.index or 0,
        )
        self._told = device.kind == "cuda"

    def start(self, cap_bytes: int | None) -> Start:
        """Return what a probe that starts now finds.

        Args:
            cap_bytes: what it may use; None for all.
        """
        free = self._free()
        for _ in range(_MOST_WAITS):
            if free is None or free >= self._expected - self._slack:
                break
            self._wait(_WAIT_SECONDS)
            free = self._free()
        if free is None:
            return Start()
        self._expected = min(self._expected, free + self._slack)  # wait for one thing once
        surplus = self._before - free
        short = cap_bytes is None or free < cap_bytes
        return Start(free, surplus if surplus > self._slack and short else None)

    def _free(self) -> int | None:
        if not self._told:
            return None
        try:
            return self._driver.memory(self._driver.open(self._identity)).free_bytes
        except DriverRefused:
            self._told = False
            return None
