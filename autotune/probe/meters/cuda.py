"""Peak memory and its cap on an NVIDIA GPU: torch's allocator, and the driver's own figures.

A number the driver will not give, or gives below what the allocator reserves, is absent with the
reason; none is ever guessed. What decides then is what the allocator reserves and the context.
"""

from __future__ import annotations

from autotune.core.device_state import DeviceState
from autotune.core.memory import Peaks
from autotune.core.units import show_bytes
from autotune.probe.meters.context import Context
from autotune.probe.meters.runtime import AllocatorPeaks, CudaRuntime
from autotune.probe.meters.sampler import Sampler


class CudaMeter:
    """Read the allocator's peaks and those a sampler saw."""

    def __init__(self, runtime: CudaRuntime, sampler: Sampler, context: Context) -> None:
        """Start sampling.

        Args:
            runtime: the device's CUDA runtime.
            sampler: the driver's view of the same device.
            context: what opening the device took.
        """
        self._runtime = runtime
        self._context = context
        self._sampler = sampler
        self._laps_bytes = (0, 0)
        self._sampler.start()
        self.reset()

    def reset(self) -> None:
        """Forget all peaks so far."""
        self._laps_bytes = (0, 0)
        self._runtime.reset()
        self._sampler.reset()

    def lap(self) -> int:
        """Return the allocator's peak of live bytes since the last lap or reset."""
        peaks = self._runtime.peaks()
        self._laps_bytes = self._with_laps(peaks)
        self._runtime.reset()
        return peaks.allocated_bytes

    def _with_laps(self, peaks: AllocatorPeaks) -> tuple[int, int]:
        """Return allocated and reserved peaks, laps before these included."""
        allocated, reserved = self._laps_bytes
        return max(allocated, peaks.allocated_bytes), max(reserved, peaks.reserved_bytes)

    def read(self) -> Peaks:
        """Return the four peaks since the last reset."""
        peaks = self._runtime.peaks()  # waits for the device, so that the look sees it all
        self._sampler.look(clocks=False)
        allocated_bytes, reserved_bytes = self._with_laps(peaks)
        process_bytes, absent = self._sampler.process_peak_bytes, dict(self._sampler.absent)
        if why := self._why_no_answer(process_bytes, reserved_bytes):
            process_bytes, absent["process"] = None, why
        return Peaks(
            allocated_bytes=allocated_bytes,
            reserved_bytes=reserved_bytes,
            context_bytes=self._context.held_bytes,
            context_source=self._context.source,
            process_bytes=process_bytes,
            device_used_bytes=self._sampler.device_peak_bytes,
            absent=absent,
            allocation_retries=peaks.retries,
        )

    def _why_no_answer(self, process_bytes: int | None, reserved_bytes: int) -> str:
        """Return why the driver's figure for this process is no answer; empty when it may be."""
        if self._context.unlisted:
            return self._context.unlisted
        if process_bytes is None or process_bytes >= reserved_bytes:
            return ""
        return (
            f"the driver says {show_bytes(process_bytes)}, less than the "
            f"{show_bytes(reserved_bytes)} the allocator reserves"
        )

    def state(self) -> DeviceState:
        """Return what the clocks did since this was last asked."""
        self._sampler.look(clocks=True)
        return self._sampler.state()


class CudaCap:
    """Hold torch's caching allocator to a budget; the CUDA context is charged to the budget too."""

    def __init__(self, runtime: CudaRuntime, context: Context) -> None:
        """Take what the process holds beside the allocator.

        Args:
            runtime: the device's CUDA runtime.
            context: what opening the device took.
        """
        self._runtime = runtime
        self._context = context
        self._total_bytes = runtime.properties().total_bytes

    def enforce(self, budget_bytes: int) -> None:
        """Cap the allocator at the budget minus the context this process already holds."""
        allowed = max(1, budget_bytes - self._context.held_bytes)
        self._runtime.cap(min(1.0, allowed / self._total_bytes))

    def lift(self) -> None:
        """Let the allocator use the whole device again."""
        self._runtime.cap(1.0)
