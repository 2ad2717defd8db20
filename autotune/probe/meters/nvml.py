"""The real driver library, through ``pynvml`` (the distribution ``nvidia-ml-py``).

Opens no CUDA context, so that the parent may ask too. Every way of failing (an NVML error, a
missing library, a function older drivers lack) becomes `DriverRefused` in the driver's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autotune.probe.meters.driver import DeviceMemory, DriverRefused, Identity, Reading
from autotune.probe.meters.faults import is_fault

_T = TypeVar("_T")

#: Bits of NVML's clock event reasons that hold clocks back (``nvml.h``, driver 560); idling and a
#: user's own setting are not among them.
_HELD_BACK = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class NvmlDriver:
    """Ask NVML; it is initialised at the first question, once."""

    def __init__(self) -> None:
        """Import nothing yet."""
        self._library: Any = None

    def count(self) -> int:
        """Return how many devices there are."""
        return int(self._call("nvmlDeviceGetCount"))

    def faults(self) -> tuple[str, ...]:
        """Return what keeps devices from being used, each in the library's words."""
        found: dict[str, list[str]] = {}
        for index in range(self.count()):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", index)
            except DriverRefused as refused:
                found.setdefault(str(refused), []).append(str(index))
                continue
            try:
                self._call("nvmlDeviceGetMemoryInfo", handle)
            except DriverRefused as refused:
                if is_fault(str(refused)):
                    found.setdefault(str(refused), []).append(str(index))
        return tuple(f"{words} (GPU {', '.join(which)})" for words, which in found.items())

    def open(self, identity: Identity) -> object:
        """Return the handle of a device, found by UUID or bus id."""
        refusals = []
        for uuid in identity.uuids:
            try:
                return self._of_slice(self._call("nvmlDeviceGetHandleByUUID", uuid.encode()))
            except DriverRefused as refused:
                refusals.append(str(refused))
        if identity.pci_bus_id is not None:
            name = identity.pci_bus_id.encode()
            return self._of_slice(self._call("nvmlDeviceGetHandleByPciBusId", name))
        raise DriverRefused(refusals[0] if refusals else "the device has neither UUID nor bus id")

    def _of_slice(self, handle: object) -> object:
        """Return the one slice of a card that is divided; the handle itself when it is not."""
        try:
            divided = bool(self._call("nvmlDeviceGetMigMode", handle)[0])
            count = int(self._call("nvmlDeviceGetMaxMigDeviceCount", handle)) if divided else 0
        except DriverRefused:
            return handle  # a slice itself, or a card without MIG
        slices = []
        for index in range(count):
            try:
                slices.append(self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index))
            except DriverRefused:
                continue
        if len(slices) == 1:
            return slices[0]
        if divided:
            raise DriverRefused(
                f"the card is divided (MIG) into {len(slices)} visible slices and which one this "
                "process has cannot be told"
            )
        return handle

    def memory(self, handle: object) -> DeviceMemory:
        """Return total and free memory."""
        info = self._call("nvmlDeviceGetMemoryInfo", handle)
        if not info.total:
            raise DriverRefused("NVML reports a device of 0 bytes")
        return DeviceMemory(total_bytes=int(info.total), free_bytes=int(info.free))

    def process_bytes(self, handle: object) -> Mapping[int, int | None]:
        """Return memory by process id."""
        try:
            listed = self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        except DriverRefused:  # drivers before 510 know the second version only
            listed = self._call("nvmlDeviceGetComputeRunningProcesses_v2", handle)
        return {
            int(p.pid): None if p.usedGpuMemory is None else int(p.usedGpuMemory) for p in listed
        }

    def reading(self, handle: object) -> Reading:
        """Return clocks, temperature and what holds the clocks back."""
        reasons = self._maybe("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # drivers before 535 know the older name only
            reasons = self._maybe("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return Reading(
            sm_clock_mhz=self._maybe("nvmlDeviceGetClockInfo", handle, 1),  # NVML_CLOCK_SM
            memory_clock_mhz=self._maybe("nvmlDeviceGetClockInfo", handle, 2),  # NVML_CLOCK_MEM
            temperature_celsius=self._maybe("nvmlDeviceGetTemperature", handle, 0),
            held_back=tuple(words for bit, words in _HELD_BACK.items() if (reasons or 0) & bit),
        )

    def _maybe(self, name: str, *arguments: object) -> int | None:
        try:
            return int(self._call(name, *arguments))
        except DriverRefused:
            return None

    def _call(self, name: str, *arguments: object) -> Any:
        def start() -> Any:
            import pynvml

            pynvml.nvmlInit()
            return pynvml

        if self._library is None:
            self._library = _refusing(start)
        library = self._library
        return _refusing(lambda: getattr(library, name)(*arguments))


def _refusing(ask: Callable[[], _T]) -> _T:
    """Ask, and turn every way the library fails into a refusal.

    Raises:
        DriverRefused: in the library's words.
    """
    try:
        import pynvml
    except ImportError as error:
        raise DriverRefused(f"pynvml cannot be imported: {error}") from error
    try:
        return ask()
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, OSError, AttributeError) as error:
        raise DriverRefused(f"NVML: {error}") from error
