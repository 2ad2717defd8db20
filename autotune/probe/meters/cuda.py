"""Peak memory and its cap on an NVIDIA GPU: torch's allocator, and the driver's own figures.

A number the driver will not give is absent with the driver's own reason; none is ever guessed.
"""

from __future__ import annotations

import os

from autotune.core.device_state import DeviceState
from autotune.core.memory import Peaks
from autotune.probe.meters.driver import Driver, DriverRefused, Identity
from autotune.probe.meters.runtime import AllocatorPeaks, CudaRuntime
from autotune.probe.meters.sampler import Sampler

#: What a context takes when neither the driver nor the runtime says: with torch's kernels loaded
#: about 0.5 GiB, the upper end of what is published for A100 and H100.
CONTEXT_BYTES = 512 * 2**20


class CudaMeter:
    """Read the allocator's peaks and those a sampler saw."""

    def __init__(self, runtime: CudaRuntime, sampler: Sampler) -> None:
        """Start sampling.

        Args:
            runtime: the device's CUDA runtime.
            sampler: the driver's view of the same device.
        """
        self._runtime = runtime
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
        return Peaks(
            allocated_bytes=allocated_bytes,
            reserved_bytes=reserved_bytes,
            process_bytes=self._sampler.process_peak_bytes,
            device_used_bytes=self._sampler.device_peak_bytes,
            absent=self._sampler.absent,
            allocation_retries=peaks.retries,
        )

    def state(self) -> DeviceState:
        """Return what the clocks did since this was last asked."""
        self._sampler.look(clocks=True)
        return self._sampler.state()


class CudaCap:
    """Hold torch's caching allocator to a budget; the CUDA context is charged to the budget too."""

    def __init__(self, runtime: CudaRuntime, driver: Driver, identity: Identity) -> None:
        """Open the context, so that its size is known.

        Args:
            runtime: the device's CUDA runtime.
            driver: the driver library.
            identity: the device's names.
        """
        self._runtime = runtime
        self._driver = driver
        self._identity = identity
        self._total_bytes = runtime.properties().total_bytes
        runtime.memory()

    def enforce(self, budget_bytes: int) -> None:
        """Cap the allocator at the budget minus the context this process already holds."""
        allowed = max(1, budget_bytes - self.context_bytes())
        self._runtime.cap(min(1.0, allowed / self._total_bytes))

    def lift(self) -> None:
        """Let the allocator use the whole device again."""
        self._runtime.cap(1.0)

    def context_bytes(self) -> int:
        """Return what this process holds of the device beside the allocator."""
        try:
            handle = self._driver.open(self._identity)
            mine = self._driver.process_bytes(handle).get(os.getpid())
        except DriverRefused:
            mine = None
        if mine is None:
            return CONTEXT_BYTES
        return max(0, mine - self._runtime.reserved_bytes())
