"""What is asked of a GPU's driver library, in values; nvml.py asks it, autotune.testing plays it.

Nothing here decides what a missing answer means: every refusal is a `DriverRefused` with the
driver's own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class DriverRefused(Exception):
    """The driver library is absent, or does not answer this question here."""


@dataclass(frozen=True)
class Identity:
    """Name one device in ways that survive ``CUDA_VISIBLE_DEVICES``; never its index.

    Args:
        uuid: UUID as CUDA gives it, without prefix; None where CUDA gives none.
        pci_bus_id: such as ``0000:3b:00.0``; None where it is unknown.
        visible: the device's entry in ``CUDA_VISIBLE_DEVICES`` when that is a UUID.
    """

    uuid: str | None
    pci_bus_id: str | None = None
    visible: str | None = None

    @classmethod
    def of(
        cls, uuid: str | None, pci_bus_id: str | None, visible: str | None, index: int
    ) -> Identity:
        """Return the names of a device.

        Args:
            uuid: as for the class.
            pci_bus_id: as for the class.
            visible: ``CUDA_VISIBLE_DEVICES`` of this process; None when it is not set.
            index: CUDA device index, which counts in that list.
        """
        names = [n.strip() for n in visible.split(",")] if visible else []
        own = names[index] if index < len(names) else ""
        return cls(uuid, pci_bus_id, own if own.startswith(("GPU-", "MIG-")) else None)

    @property
    def uuids(self) -> tuple[str, ...]:
        """UUIDs to try, most exact first: a slice is named before the card it is cut from."""
        named = [self.visible] if self.visible else []
        if self.uuid is not None:
            named += [f"MIG-{self.uuid}", f"GPU-{self.uuid}"]
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a device or of the slice that was opened, in bytes."""

    total_bytes: int
    free_bytes: int

    @property
    def used_bytes(self) -> int:
        """What everybody holds, the driver's own reserve included."""
        return self.total_bytes - self.free_bytes


@dataclass(frozen=True)
class Reading:
    """One look at clocks; each number is None where this device does not give it.

    Args:
        sm_clock_mhz: clock of the multiprocessors.
        memory_clock_mhz: clock of the memory.
        temperature_celsius: temperature.
        held_back: what keeps the clocks below their most, in words.
    """

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    held_back: tuple[str, ...] = ()


class Driver(Protocol):
    """Answer questions about devices; handles are the driver's own and opaque."""

    def count(self) -> int:
        """Return how many devices there are, whatever a process may see.

        Raises:
            DriverRefused: there is no library.
        """

    def faults(self) -> tuple[str, ...]:
        """Return what keeps devices from being used, in the driver's words; empty when nothing.

        Raises:
            DriverRefused: there is no library, or it does not start.
        """

    def open(self, identity: Identity) -> object:
        """Return a handle of the device (of the MIG slice, where it is one).

        Raises:
            DriverRefused: there is no library, or it does not know the device.
        """

    def memory(self, handle: object) -> DeviceMemory:
        """Return what the device has and what is free of it.

        Raises:
            DriverRefused: it does not say (no permission, not supported, a missing symbol).
        """

    def process_bytes(self, handle: object) -> Mapping[int, int | None]:
        """Return memory by process id; None where the driver lists a process without a figure.

        Raises:
            DriverRefused: it does not list processes.
        """

    def reading(self, handle: object) -> Reading:
        """Return clocks and temperature, as far as the device gives them; never refuses."""
