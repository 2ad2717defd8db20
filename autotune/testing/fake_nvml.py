"""A driver library made of numbers: machines we do not have, played for tests and for trying out.

Each maker below is one kind of machine that public trackers tell of. Handles are UUIDs or bus ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.probe.meters.driver import DeviceMemory, DriverRefused, Identity, Reading

_GIB = 2**30
UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"
BUS_ID = "0000:3b:00.0"

#: NVML's words for its errors (``pynvml.NVMLError``).
NO_PERMISSION = "NVML: Insufficient Permissions"
NOT_SUPPORTED = "NVML: Not Supported"
NO_FUNCTION = "NVML: Function Not Found"
NO_SYMBOL = "NVML: undefined symbol: nvmlDeviceGetMemoryInfo_v2"
NO_LIBRARY = "NVML: NVML Shared Library Not Found"
VERSION_MISMATCH = "NVML: RM has detected an NVML/RM version mismatch."
GPU_LOST = "NVML: GPU is lost"


@dataclass
class FakeDevice:
    """One device as the driver would show it; what is held may be changed between questions.

    Args:
        total_bytes: its memory.
        held: bytes by process id.
        unlisted_bytes: what a desktop draws with: used, and in no list of computing processes. One
            figure for every look at the memory; the last one repeats.
        listed: whether processes are listed with a figure (``yes``), without (``no figure``), with
            0 bytes (``zero``), under ids of another namespace (``other ids``), not at all
            (``nobody``), refused (``no``), or cannot be asked for (``no function``).
        refusal: words in which the device cannot be opened; empty when it can.
        memory_refusal: words in which the memory query is refused; empty when it is answered.
        reading: clocks; one for every look, the last one repeats.
    """

    total_bytes: int = 16 * _GIB
    held: dict[int, int] = field(default_factory=dict)
    unlisted_bytes: tuple[int, ...] = (0,)
    listed: str = "yes"
    refusal: str = ""
    memory_refusal: str = ""
    reading: tuple[Reading, ...] = (Reading(1980, 2619, 45),)
    looks: int = 0

    @property
    def used_bytes(self) -> int:
        """What is used of it now."""
        unlisted = self.unlisted_bytes[min(self.looks, len(self.unlisted_bytes) - 1)]
        return sum(self.held.values()) + unlisted


class FakeNvml:
    """Answer as a driver with these devices would.

    Args:
        devices: device by UUID (with prefix) or bus id.
        refusal: words in which every question is refused, as where there is no library.
    """

    def __init__(self, devices: Mapping[str, FakeDevice], refusal: str = "") -> None:
        """Take the devices."""
        self.devices = dict(devices)
        self.looks = 0
        self._refusal = refusal

    def count(self) -> int:
        """Return how many devices there are."""
        if self._refusal:
            raise DriverRefused(self._refusal)
        return len(self._cards)

    def faults(self) -> tuple[str, ...]:
        """Return what keeps devices from being opened."""
        self.count()
        words = [card.refusal for card in self._cards]
        return tuple(f"{said} (GPU {at})" for at, said in enumerate(words) if said)

    @property
    def _cards(self) -> list[FakeDevice]:
        """Return every card once, whatever names it has; a slice is none."""
        named = [device for name, device in self.devices.items() if not name.startswith("MIG-")]
        return list({id(device): device for device in named}.values())

    def open(self, identity: Identity) -> object:
        """Return the first of the identity's names that is a device."""
        if self._refusal:
            raise DriverRefused(self._refusal)
        names = (*identity.uuids, *([identity.pci_bus_id] if identity.pci_bus_id else []))
        for name in names:
            if name in self.devices:
                if self.devices[name].refusal:
                    raise DriverRefused(self.devices[name].refusal)
                return name
        raise DriverRefused("NVML: Not Found")

    def memory(self, handle: object) -> DeviceMemory:
        """Return total and free memory."""
        device = self.devices[str(handle)]
        if device.memory_refusal:
            raise DriverRefused(device.memory_refusal)
        free = device.total_bytes - device.used_bytes
        device.looks += 1
        return DeviceMemory(device.total_bytes, free)

    def process_bytes(self, handle: object) -> Mapping[int, int | None]:
        """Return memory by process id."""
        device = self.devices[str(handle)]
        if device.listed == "no":
            raise DriverRefused(NO_PERMISSION)
        if device.listed == "no function":
            raise DriverRefused(NO_FUNCTION)
        if device.listed == "nobody":
            return {}
        if device.listed in ("no figure", "zero"):
            return dict.fromkeys(device.held, None if device.listed == "no figure" else 0)
        shift = 1_000_000 if device.listed == "other ids" else 0
        return {pid + shift: held for pid, held in device.held.items()}

    def reading(self, handle: object) -> Reading:
        """Return the next reading."""
        readings = self.devices[str(handle)].reading
        self.looks += 1
        return readings[min(self.looks, len(readings)) - 1]


def normal(**device: object) -> FakeNvml:
    """Return a driver with one whole card."""
    card = FakeDevice(**device)  # type: ignore[arg-type]
    return FakeNvml({f"GPU-{UUID}": card, BUS_ID: card})


def slice_of_a_card(slice_bytes: int, **device: object) -> FakeNvml:
    """Return a container that holds one MIG slice: the card's own memory is not to be asked for."""
    part = FakeDevice(total_bytes=slice_bytes, reading=(Reading(),), **device)  # type: ignore[arg-type]
    card = FakeDevice(total_bytes=80 * _GIB, memory_refusal=NO_PERMISSION)
    return FakeNvml({f"MIG-{UUID}": part, f"GPU-{UUID}": card, BUS_ID: card})


def unified(refusal: str = NOT_SUPPORTED) -> FakeNvml:
    """Return a machine whose GPU shares the system's memory: names and clocks work, memory not."""
    return normal(memory_refusal=refusal, listed="no figure")


def no_library() -> FakeNvml:
    """Return a machine without NVML."""
    return FakeNvml({}, refusal=NO_LIBRARY)


def version_mismatch() -> FakeNvml:
    """Return a machine whose driver was updated and not loaded anew."""
    return FakeNvml({}, refusal=VERSION_MISMATCH)


def gpu_lost() -> FakeNvml:
    """Return a machine whose card fell off the bus."""
    card = FakeDevice(refusal=GPU_LOST)
    return FakeNvml({f"GPU-{UUID}": card, BUS_ID: card})


def not_permitted() -> FakeNvml:
    """Return a machine whose cards this user may not open."""
    card = FakeDevice(refusal=NO_PERMISSION)
    return FakeNvml({f"GPU-{UUID}": card, BUS_ID: card})


def old_driver(**device: object) -> FakeNvml:
    """Return a driver that lacks the functions that list processes."""
    return normal(listed="no function", **device)
