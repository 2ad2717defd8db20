"""Peak memory as four numbers that are never mixed, each absent with its reason."""

from __future__ import annotations

from autotune.core.job import Frozen


class Peaks(Frozen):
    """Hold the peaks of one probe in bytes, above what the process held before the model.

    Args:
        allocated_bytes: live bytes of torch's allocator.
        reserved_bytes: bytes the caching allocator took from the device (CUDA only).
        process_bytes: what the driver or the kernel counts for the process.
        device_used_bytes: what is used of the device by everybody (CUDA only).
        absent: for every number that is None, why.
        allocation_retries: times the caching allocator had to flush and try again.
    """

    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    absent: dict[str, str] = {}
    allocation_retries: int | None = None

    @property
    def deciding_bytes(self) -> int | None:
        """The largest number this process is charged with; what is held against the budget."""
        known = [
            b
            for b in (self.allocated_bytes, self.reserved_bytes, self.process_bytes)
            if b is not None
        ]
        return max(known) if known else None
