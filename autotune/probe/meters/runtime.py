"""What is asked of the CUDA runtime, in values; the real one goes through torch.

Kept apart from the meter so that its logic is tried where there is no GPU (see `autotune.testing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from autotune.probe.meters.driver import Identity


@dataclass(frozen=True)
class AllocatorPeaks:
    """Peaks of torch's caching allocator since the last reset, in bytes.

    Args:
        allocated_bytes: live tensors.
        reserved_bytes: what the allocator took from the device.
        retries: times it had to flush and try again, since the process started.
    """

    allocated_bytes: int
    reserved_bytes: int
    retries: int


@dataclass(frozen=True)
class Properties:
    """What CUDA says of a device before a context is opened on it.

    Args:
        name: the maker's name.
        total_bytes: its memory, of the slice where it is one.
        capability: compute capability, major and minor.
        integrated: whether it has no memory of its own and shares the system's.
        uuid: without prefix; None where CUDA gives none.
        pci_bus_id: such as ``0000:3b:00.0``; None where torch does not give it.
    """

    name: str
    total_bytes: int
    capability: tuple[int, int]
    integrated: bool
    uuid: str | None
    pci_bus_id: str | None

    def identity(self, visible: str | None, index: int) -> Identity:
        """Return how the driver knows the device; arguments as for `Identity.of`."""
        return Identity.of(self.uuid, self.pci_bus_id, visible, index)


class CudaRuntime(Protocol):
    """Answer for one device as this process sees it."""

    def is_open(self) -> bool:
        """Return whether this process has a context on the device."""

    def warm_up(self) -> None:
        """Open a context and load the kernels of a training step; what was allocated is freed."""

    def properties(self) -> Properties:
        """Describe the device; opens no context on it."""

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes (``mem_get_info``); opens a context."""

    def reserved_bytes(self) -> int:
        """Return what the caching allocator holds of the device now."""

    def reset(self) -> None:
        """Forget the allocator's peaks, after everything queued has run."""

    def peaks(self) -> AllocatorPeaks:
        """Return the allocator's peaks, after everything queued has run."""

    def cap(self, share: float) -> None:
        """Let the allocator reserve this share of the device's memory at most, 0..1."""


class TorchRuntime:
    """The CUDA runtime behind ``torch.cuda``."""

    def __init__(self, index: int) -> None:
        """Take a device.

        Args:
            index: CUDA device index as this process sees it.
        """
        import torch

        self._torch = torch
        self._index = index

    def is_open(self) -> bool:
        """Ask the driver for the primary context."""
        built: Any = self._torch._C  # a build without CUDA has no such function
        return bool(built._cuda_hasPrimaryContext(self._index))

    def warm_up(self) -> None:
        """Run one small step."""
        with self._torch.random.fork_rng(devices=[self._index]):
            small_step(f"cuda:{self._index}")
        self._torch.cuda.synchronize(self._index)
        self._torch.cuda.empty_cache()

    def properties(self) -> Properties:
        """Describe the device."""
        found: Any = self._torch.cuda.get_device_properties(self._index)
        # Which of these torch gives depends on its version and on the build (CUDA, ROCm).
        domain, bus, slot = (
            getattr(found, f"pci_{n}_id", None) for n in ("domain", "bus", "device")
        )
        known = domain is not None and bus is not None and slot is not None
        uuid = getattr(found, "uuid", None)
        return Properties(
            name=str(found.name),
            total_bytes=int(found.total_memory),
            capability=(int(found.major), int(found.minor)),
            integrated=bool(getattr(found, "is_integrated", False)),
            uuid=None if uuid is None else str(uuid),
            pci_bus_id=f"{domain:04x}:{bus:02x}:{slot:02x}.0" if known else None,
        )

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes."""
        free_bytes, total_bytes = self._torch.cuda.mem_get_info(self._index)
        return int(free_bytes), int(total_bytes)

    def reserved_bytes(self) -> int:
        """Return what the caching allocator holds."""
        return int(self._torch.cuda.memory_reserved(self._index))

    def reset(self) -> None:
        """Forget the allocator's peaks."""
        self._torch.cuda.synchronize(self._index)
        self._torch.cuda.reset_peak_memory_stats(self._index)

    def peaks(self) -> AllocatorPeaks:
        """Return the allocator's peaks."""
        self._torch.cuda.synchronize(self._index)
        stats = self._torch.cuda.memory_stats(self._index)
        return AllocatorPeaks(
            allocated_bytes=int(self._torch.cuda.max_memory_allocated(self._index)),
            reserved_bytes=int(self._torch.cuda.max_memory_reserved(self._index)),
            retries=int(stats.get("num_alloc_retries", 0)),
        )

    def cap(self, share: float) -> None:
        """Cap the allocator."""
        self._torch.cuda.set_per_process_memory_fraction(share, self._index)


def small_step(device: str) -> None:
    """Run forward, backward and update of a tiny block in fp32 and in half precision.

    Args:
        device: ``cpu`` or ``cuda:i``.
    """
    import torch
    from torch.nn import functional

    half = torch.bfloat16
    if device != "cpu" and torch.cuda.get_device_capability(device)[0] < 8:
        half = torch.float16  # before Ampere bf16 is emulated, and some products are refused
    for dtype in (torch.float32, half):
        made: Any = {"device": device, "dtype": dtype}
        block = torch.nn.Sequential(torch.nn.LayerNorm(64, **made), torch.nn.Linear(64, 64, **made))
        optimizer = torch.optim.AdamW(block.parameters(), fused=True)
        heads = block(torch.randn(2, 16, 64, **made)).view(2, 16, 4, 16).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        scores = functional.silu(functional.dropout(seen, 0.1)).reshape(-1, 64).float()
        targets = torch.zeros(len(scores), dtype=torch.long, device=device)
        torch.autograd.backward(functional.cross_entropy(scores, targets))
        torch.nn.utils.clip_grad_norm_(block.parameters(), 1.0)
        optimizer.step()
