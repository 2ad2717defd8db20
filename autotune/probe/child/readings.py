"""What the meter said of one probe, read at the borders of its stages.

Holds the numbers while the probe runs, so that they survive a failure half-way; judges none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from autotune.core.device_state import DeviceState
from autotune.core.measurement import Precompute
from autotune.core.memory import Peaks, highest
from autotune.core.stages import LOAD, MEMORY, TIMED
from autotune.probe.meters.base import Cap, Meter
from autotune.probe.meters.heap import release_heap

_NO_CUDA = "a CUDA number; this probe ran on the CPU"
#: Why a stage that is watched has only live bytes.
_WATCHED = {
    "process": "the watch that counts live bytes takes memory of its own",
    "reserved": _NO_CUDA,
    "device_used": _NO_CUDA,
}


class Readings:
    """Read one device's meter and keep what it says, stage by stage."""

    def __init__(self, meter: Meter, cap: Cap, *, on_cpu: bool) -> None:
        """Start with nothing read.

        Args:
            meter: of the device.
            cap: held until time is taken or live bytes are watched, on a GPU to the end.
            on_cpu: whether live bytes are watched apart (`AllocatorWatch`).
        """
        self.meter = meter
        self.on_cpu = on_cpu
        self.stages: dict[str, Peaks] = {}
        self.precompute: Precompute | None = None
        self.update_peaks_bytes: list[int] = []
        self.update_reserved_bytes: list[int] = []
        self.device_state: DeviceState | None = None
        self._cap = cap
        #: returns the bytes of a paged optimizer's states; None where it has none
        self.paged_bytes: Callable[[], int | None] = lambda: None

    def finish(self, stage: str) -> None:
        """Read the peak of a stage, and forget it: what follows is another stage's."""
        peaks = self.meter.read().model_copy(update={"paged_bytes": self.paged_bytes()})
        self._keep(stage, peaks)
        self.meter.reset()

    def watched(self, stage: str, allocated_bytes: int) -> None:
        """Keep the live bytes a stage was watched to hold at most."""
        self._keep(stage, Peaks(allocated_bytes=allocated_bytes, absent=_WATCHED))

    def _keep(self, stage: str, peaks: Peaks) -> None:
        known = self.stages.get(stage)
        self.stages[stage] = peaks if known is None else highest(peaks, known)

    def begin_memory(self) -> None:
        """Begin the memory phase: on a GPU whatever came before belongs to loading.

        On a CPU the rows that were looked at in between do not: they are the probe's own.
        """
        if self.on_cpu:
            self.meter.reset()
        else:
            self.finish(LOAD)

    def note_reserved(self) -> None:
        """Note the most the caching allocator held so far, after an update of a verification."""
        reserved_bytes = self.meter.read().reserved_bytes
        if reserved_bytes is not None:
            self.update_reserved_bytes.append(reserved_bytes)

    def uncap(self) -> None:
        """Let the process allocate freely: what a watch needs would be charged to the cap."""
        self._cap.lift()

    def begin_timing(self) -> None:
        """Let the heap of a CPU be as training finds it, which holds more than a cap allows for.

        A GPU's allocator is the same in both, so that its cap and its peaks go on.
        """
        if self.on_cpu:
            self.uncap()
            release_heap()

    def timed(self) -> None:
        """Read what steps of mixed lengths held, where it repeats (see `begin_timing`)."""
        if not self.on_cpu:
            self.finish(TIMED)

    def begin_state(self) -> None:
        """Forget what clocks did so far."""
        self.meter.state()

    def end_state(self) -> None:
        """Read what clocks did meanwhile."""
        self.device_state = self.meter.state()

    @property
    def peaks(self) -> Peaks | None:
        """Peaks over everything that was run; None before the memory phase is complete."""
        if MEMORY not in self.stages:
            return None
        return reduce(lambda earlier, later: highest(later, earlier), self.stages.values())


class Watched:
    """Watch torch's CPU allocator during one stage."""

    def __init__(self, readings: Readings, stage: str, held: Callable[[], list[Any]]) -> None:
        """Watch nothing yet.

        Args:
            readings: told of the peak.
            stage: what the peak is of.
            held: returns the tensors alive between updates, see `held_tensors`.
        """
        self._readings = readings
        self._stage = stage
        self._held = held
        self._watch: Any = None

    def start(self) -> None:
        """Begin to watch; from here on nothing is capped."""
        from autotune.probe.meters.cpu import AllocatorWatch

        self._readings.uncap()
        self._watch = AllocatorWatch(self._held())

    def stop(self) -> None:
        """Watch no more and keep the peak."""
        self._readings.watched(self._stage, self._watch.stop())


class WatchedSeries:
    """Watch torch's CPU allocator update by update, since resident pages show no trend."""

    def __init__(self, readings: Readings, stage: str, held: Callable[[], list[Any]]) -> None:
        """Watch nothing yet; arguments as for `Watched`."""
        self._readings = readings
        self._stage = stage
        self._held = held
        self._watch: Any = None
        self._kept_bytes = 0

    def start(self) -> None:
        """Begin the first window; from here on nothing is capped."""
        self._readings.uncap()
        self._open()

    def _open(self) -> None:
        from autotune.probe.meters.cpu import AllocatorWatch

        held = [] if self._kept_bytes else self._held()
        self._watch = AllocatorWatch(held, self._kept_bytes)

    def _close(self, stage: str) -> int:
        peak_bytes: int = self._watch.stop()
        # What a model keeps beside its tensors shows only when windows follow each other.
        self._kept_bytes = self._watch.live_bytes
        self._readings.watched(stage, peak_bytes)
        return peak_bytes

    def update(self) -> None:
        """End one update's window and begin the next."""
        self._readings.update_peaks_bytes.append(self._close(self._stage))
        self._open()

    def split(self, stage: str) -> None:
        """End a window that is no update's, and begin the next.

        Args:
            stage: what was done in it.
        """
        self._close(stage)
        self._open()

    def stop(self) -> None:
        """End the last window, which no update completed."""
        self._watch.stop()
        self._watch = None
