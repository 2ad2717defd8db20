"""What the meter said of one probe, read at the borders of its stages.

Holds the numbers while the probe runs, so that they survive a failure half-way; judges none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.core.device_state import DeviceState
from autotune.core.measurement import Precompute
from autotune.core.memory import Peaks, highest
from autotune.probe.meters.base import Cap, Meter
from autotune.probe.meters.heap import release_heap


class Readings:
    """Read one device's meter and keep what it says."""

    def __init__(self, meter: Meter, cap: Cap, *, on_cpu: bool) -> None:
        """Start with nothing read.

        Args:
            meter: of the device.
            cap: held from load to the end of the memory phase, on a GPU to the end of the probe.
            on_cpu: whether live bytes are watched apart (`AllocatorWatch`).
        """
        self.meter = meter
        self.on_cpu = on_cpu
        self.load: Peaks | None = None
        self.precompute: Precompute | None = None
        self.memory: Peaks | None = None
        self.allocated_bytes: int | None = None
        self.update_peaks_bytes: list[int] = []
        self.device_state: DeviceState | None = None
        self._cap = cap
        #: returns the bytes of a paged optimizer's states; None where it has none
        self.paged_bytes: Callable[[], int | None] = lambda: None

    def loaded(self) -> None:
        """Read the peak of loading."""
        self.load = self.meter.read()

    def memory_done(self) -> None:
        """Read the peak of the memory phase; what follows on a CPU may be watched uncapped."""
        self.memory = self.meter.read().model_copy(update={"paged_bytes": self.paged_bytes()})
        if self.on_cpu:
            self._cap.lift()
            release_heap()

    def begin_state(self) -> None:
        """Forget what clocks did so far."""
        self.meter.state()

    def end_state(self) -> None:
        """Read what clocks did meanwhile."""
        self.device_state = self.meter.state()

    @property
    def peaks(self) -> Peaks | None:
        """Peaks over everything that was run; None before the memory phase is complete."""
        if self.load is None or self.memory is None:
            return None
        before = self.load
        if self.precompute is not None:
            before = highest(self.precompute.peaks, before)
        allocated = max(self.update_peaks_bytes, default=self.allocated_bytes)
        return highest(self.memory, before, allocated)


class WatchedUpdate:
    """Watch torch's CPU allocator during one update."""

    def __init__(self, readings: Readings, held: Callable[[], list[Any]]) -> None:
        """Watch nothing yet.

        Args:
            readings: told of the peak.
            held: returns the tensors alive between updates, see `held_tensors`.
        """
        self._readings = readings
        self._held = held
        self._watch: Any = None

    def start(self) -> None:
        """Begin to watch."""
        from autotune.probe.meters.cpu import AllocatorWatch

        self._watch = AllocatorWatch(self._held())

    def stop(self) -> None:
        """Watch no more and keep the peak."""
        self._readings.allocated_bytes = self._watch.stop()


class WatchedSeries:
    """Watch torch's CPU allocator update by update, since resident pages show no trend."""

    def __init__(self, readings: Readings, held: Callable[[], list[Any]]) -> None:
        """Watch nothing yet; arguments as for `WatchedUpdate`."""
        self._readings = readings
        self._held = held
        self._watch: Any = None
        self._kept_bytes = 0

    def start(self) -> None:
        """Begin the next update's window."""
        from autotune.probe.meters.cpu import AllocatorWatch

        held = [] if self._kept_bytes else self._held()
        self._watch = AllocatorWatch(held, self._kept_bytes)

    def update(self) -> None:
        """End one update's window and begin the next; nothing before the first began."""
        if self._watch is None:
            return
        self._readings.update_peaks_bytes.append(self._watch.stop())
        # What a model keeps beside its tensors shows only when windows follow each other.
        self._kept_bytes = self._watch.live_bytes
        self.start()

    def stop(self) -> None:
        """End the last window, which no update completed."""
        self._watch.stop()
        self._watch = None
