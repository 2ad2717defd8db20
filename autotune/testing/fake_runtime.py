"""A CUDA runtime made of numbers, coupled to a made-up driver: what one reserves the other sees."""

from __future__ import annotations

import os
from dataclasses import dataclass

from autotune.probe.meters.runtime import AllocatorPeaks, Properties
from autotune.testing.fake_nvml import BUS_ID, UUID, FakeDevice

_MIB = 2**20


@dataclass
class FakeRuntime:
    """One device as the process sees it; `allocate` and `release` stand for its tensors.

    Args:
        device: the same device in the driver's eyes; None where there is no driver.
        total_bytes: memory of the device (of the slice).
        integrated: whether it shares the system's memory.
        context_bytes: what opening the device takes beside tensors.
        kernels_bytes: what the kernels of a step take beside it, once they are loaded.
        reserved_ratio: what the allocator reserves per allocated byte.
        answers: whether ``mem_get_info`` works.
    """

    device: FakeDevice | None
    total_bytes: int = 16 * 1024 * _MIB
    integrated: bool = False
    context_bytes: int = 500 * _MIB
    kernels_bytes: int = 0
    reserved_ratio: float = 1.25
    answers: bool = True
    opened: bool = False
    loaded: bool = False
    share: float = 1.0
    _allocated: int = 0
    _reserved: int = 0
    _peaks: tuple[int, int] = (0, 0)
    _retries: int = 0

    def properties(self) -> Properties:
        """Describe the device."""
        return Properties("A Made-Up GPU", self.total_bytes, (9, 0), self.integrated, UUID, BUS_ID)

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes."""
        if not self.answers:
            raise RuntimeError("CUDA error: operation not supported")
        self._open()
        held = self.device.used_bytes if self.device else self._context_bytes
        return self.total_bytes - held, self.total_bytes

    def is_open(self) -> bool:
        """Return whether the device was opened."""
        return self.opened

    def warm_up(self) -> None:
        """Open the device and load the kernels."""
        self.loaded = True
        self._open()

    def allocate(self, size_bytes: int) -> None:
        """Make tensors of this size.

        Raises:
            MemoryError: the cap does not allow it.
        """
        wanted = int((self._allocated + size_bytes) * self.reserved_ratio)
        if wanted > self.share * self.total_bytes:
            self._retries += 1
            raise MemoryError(f"CUDA out of memory. Tried to allocate {size_bytes} bytes")
        self.warm_up()
        self._allocated += size_bytes
        self._reserved = max(self._reserved, wanted)
        most = self._peaks
        self._peaks = max(most[0], self._allocated), max(most[1], self._reserved)
        self._show()

    def release(self, size_bytes: int) -> None:
        """Give tensors up; the allocator keeps what it reserved."""
        self._allocated -= size_bytes

    def reserved_bytes(self) -> int:
        """Return what the allocator holds."""
        return self._reserved

    def reset(self) -> None:
        """Forget the peaks."""
        self._peaks = self._allocated, self._reserved

    def peaks(self) -> AllocatorPeaks:
        """Return the peaks."""
        return AllocatorPeaks(*self._peaks, self._retries)

    def cap(self, share: float) -> None:
        """Cap the allocator."""
        self.share = share

    def _open(self) -> None:
        self.opened = True
        self._show()

    def _show(self) -> None:
        if self.device is not None:
            self.device.held[os.getpid()] = self._context_bytes + self._reserved

    @property
    def _context_bytes(self) -> int:
        return self.context_bytes + self.kernels_bytes * self.loaded
