"""Counts the states of a paged optimizer, which torch's allocator and its cap know nothing of."""

from __future__ import annotations

from typing import Any


def paged_bytes(optimizer: Any) -> int | None:
    """Return the bytes of managed memory an optimizer's states take; None where it has none.

    bitsandbytes takes them from ``cudaMallocManaged`` and marks the tensors
    (``functional.get_paged``); small states, and all of them on a CPU, are ordinary tensors.

    Args:
        optimizer: as the trainer has it, after an update.
    """
    states = [state for state in optimizer.state.values() if isinstance(state, dict)]
    kept = (value for state in states for value in state.values())
    return sum(value.nbytes for value in kept if getattr(value, "is_paged", False)) or None
