"""Peak memory and its cap on an NVIDIA GPU: torch's allocator, and the driver through NVML.

The device is matched by UUID, never by index (``CUDA_VISIBLE_DEVICES`` renumbers). A number the
driver will not give is absent with the driver's own reason; none is ever guessed.
"""

from __future__ import annotations

import os
import threading

from autotune.core.memory import Peaks

_SAMPLE_SECONDS = 0.02


class CudaMeter:
    """Read torch's allocator peaks and sample the driver's in a thread."""

    def __init__(self, index: int) -> None:
        """Open the driver library and start sampling.

        Args:
            index: CUDA device index as this process sees it.
        """
        import torch

        self._torch = torch
        self._index = index
        self._absent: dict[str, str] = {}
        self._process_peak: int | None = None
        self._device_peak: int | None = None
        self._handle = self._open()
        self._stop = threading.Event()
        if self._handle is not None:
            threading.Thread(target=self._sample_forever, daemon=True).start()
        self.reset()

    def _open(self) -> object | None:
        import pynvml

        try:
            pynvml.nvmlInit()
            uuid = f"GPU-{self._torch.cuda.get_device_properties(self._index).uuid}"
            return pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())  # type: ignore[no-any-return]
        except (pynvml.NVMLError, OSError, AttributeError) as error:
            reason = f"NVML is not usable: {error}"
            self._absent = {"process": reason, "device_used": reason}
            return None

    def _sample_forever(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        import pynvml

        if self._handle is None:
            return
        try:
            used = int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)
            self._device_peak = max(self._device_peak or 0, used)
        except pynvml.NVMLError as error:
            self._absent["device_used"] = str(error)
        try:
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
                if process.pid == os.getpid() and process.usedGpuMemory is not None:
                    self._process_peak = max(self._process_peak or 0, int(process.usedGpuMemory))
        except pynvml.NVMLError as error:
            self._absent["process"] = str(error)

    def reset(self) -> None:
        """Forget all peaks so far."""
        self._torch.cuda.synchronize(self._index)
        self._torch.cuda.reset_peak_memory_stats(self._index)
        self._process_peak = self._device_peak = None

    def read(self) -> Peaks:
        """Return the four peaks since the last reset."""
        self._torch.cuda.synchronize(self._index)
        self._sample()
        absent = dict(self._absent)
        if self._process_peak is None:
            absent.setdefault("process", "the driver does not list this process (container?)")
        if self._device_peak is None:
            absent.setdefault("device_used", "the driver gave no device memory")
        stats = self._torch.cuda.memory_stats(self._index)
        return Peaks(
            allocated_bytes=self._torch.cuda.max_memory_allocated(self._index),
            reserved_bytes=self._torch.cuda.max_memory_reserved(self._index),
            process_bytes=self._process_peak,
            device_used_bytes=self._device_peak,
            absent=absent,
            allocation_retries=int(stats.get("num_alloc_retries", 0)),
        )


class CudaCap:
    """Hold torch's caching allocator to a budget; the CUDA context is charged to the budget too."""

    def __init__(self, index: int) -> None:
        """Open the context, so that its size is known.

        Args:
            index: CUDA device index as this process sees it.
        """
        import torch

        self._torch = torch
        self._index = index
        torch.zeros(1, device=f"cuda:{index}")
        _, self._total_bytes = torch.cuda.mem_get_info(index)

    def enforce(self, budget_bytes: int) -> None:
        """Cap the allocator at the budget minus the context this process already holds."""
        context_bytes = max(0, self._context_bytes())
        allowed = max(1, budget_bytes - context_bytes)
        self._torch.cuda.set_per_process_memory_fraction(
            min(1.0, allowed / self._total_bytes), self._index
        )

    def _context_bytes(self) -> int:
        import pynvml

        reserved = int(self._torch.cuda.memory_reserved(self._index))
        try:
            pynvml.nvmlInit()
            uuid = f"GPU-{self._torch.cuda.get_device_properties(self._index).uuid}"
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid == os.getpid() and process.usedGpuMemory is not None:
                    return int(process.usedGpuMemory) - reserved
        except (pynvml.NVMLError, OSError, AttributeError):
            pass
        # No driver figure for this process: a CUDA context with torch's kernels takes about
        # 0.5 GiB on current drivers, the upper end of what is published for A100 and H100.
        return 512 * 2**20

    def lift(self) -> None:
        """Let the allocator use the whole device again."""
        self._torch.cuda.set_per_process_memory_fraction(1.0, self._index)
