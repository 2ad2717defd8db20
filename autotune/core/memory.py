"""Peak memory as numbers that are never mixed, each absent with its reason."""

from __future__ import annotations

from autotune.core.environment import Device
from autotune.core.job import Frozen

#: The numbers, as reasons for their absence name them.
_NAMES = ("allocated", "reserved", "process", "device_used")


class Peaks(Frozen):
    """Hold the peaks of one probe in bytes, above what the process held before the model.

    Args:
        allocated_bytes: live bytes of torch's allocator.
        reserved_bytes: bytes the caching allocator took from the device (CUDA only).
        context_bytes: what the process holds of the device beside the allocator: the CUDA context
            and its kernels (CUDA only).
        context_source: where that is from, as a phrase.
        paged_bytes: states of a paged optimizer, in memory that device and host share (CUDA only).
            They count: they are on the device for as long as it has room for them.
        process_bytes: what the driver or the kernel counts for the process.
        device_used_bytes: what is used of the device by everybody (CUDA only).
        absent: for every number that is None, why.
        allocation_retries: times the caching allocator had to flush and try again.
    """

    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    context_bytes: int | None = None
    context_source: str = ""
    paged_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    absent: dict[str, str] = {}
    allocation_retries: int | None = None

    @property
    def deciding_bytes(self) -> int | None:
        """The largest number this process is charged with; what is held against the budget.

        The driver does not count managed memory for a process, nor does torch's allocator.
        """
        reserved = self.reserved_bytes
        if reserved is not None:
            reserved += self.context_bytes or 0
        known = [b for b in (self.allocated_bytes, reserved, self.process_bytes) if b is not None]
        return max(known) + (self.paged_bytes or 0) if known else None


def charged_bytes(peaks: Peaks, device: Device) -> int | None:
    """Return the measured peak predictions speak of.

    On a GPU what the process is charged with. On the CPU what tensors held: a cap there counts
    address space, and resident memory leaves out what was never touched.
    """
    return peaks.allocated_bytes if device.kind == "cpu" else peaks.deciding_bytes


def highest(later: Peaks, earlier: Peaks) -> Peaks:
    """Return the larger of two phases' peaks, number by number.

    Args:
        later: the phase whose reasons are kept, where neither has the number.
        earlier: the phase before it.
    """

    def larger(name: str) -> int | None:
        known = [v for v in (getattr(later, name), getattr(earlier, name)) if v is not None]
        return max(known) if known else None

    numbers = {name: larger(f"{name}_bytes") for name in _NAMES}
    reasons = {**earlier.absent, **later.absent}
    return Peaks(
        **{f"{name}_bytes": value for name, value in numbers.items()},
        context_bytes=larger("context_bytes"),
        context_source=later.context_source or earlier.context_source,
        paged_bytes=larger("paged_bytes"),
        absent={name: why for name, why in reasons.items() if numbers[name] is None},
        allocation_retries=larger("allocation_retries"),
    )
