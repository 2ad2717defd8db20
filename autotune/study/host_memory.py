"""Offloaded activations lie in pinned host memory, which nothing caps: held against what is free.

Pinned memory cannot be swapped out, so that running out of it may end any process of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotune.core.prediction import Prediction
from autotune.core.result import Skipped
from autotune.core.units import show_bytes

#: torch rounds pinned blocks up to powers of two (ATen/core/CachingHostAllocator.h), so that they
#: take less than this many times what is kept in them.
_ROUNDED = 2


def beyond_host(predictions: Iterable[Prediction], free_bytes: int | None) -> list[Prediction]:
    """Return the predictions that keep more in host memory than is free.

    Args:
        predictions: of candidates on one device.
        free_bytes: host memory nobody holds; None where it is not known.
    """
    if free_bytes is None:
        return []
    return [p for p in predictions if p.offloaded_bytes > free_bytes]


def skipped_for_host(beyond: Iterable[Prediction], free_bytes: int) -> Skipped:
    """Return the line of what is not probed for that; arguments as returned by `beyond_host`."""
    sizes = [p.offloaded_bytes for p in beyond]
    return Skipped(
        what="activation_offloading beyond host memory",
        reason=f"it would pin {show_bytes(min(sizes))} of host memory or more, and "
        f"{show_bytes(free_bytes)} is free",
        count=len(sizes),
    )


def host_remark(prediction: Prediction | None, free_bytes: int | None) -> str:
    """Say what one candidate keeps in host memory where that may be too much; empty elsewhere.

    Args:
        prediction: of the candidate; None says nothing.
        free_bytes: host memory nobody holds; None where it is not known.
    """
    if prediction is None or not prediction.offloaded_bytes or free_bytes is None:
        return ""
    least = prediction.offloaded_bytes
    if _ROUNDED * least <= free_bytes:
        return ""
    verdict = "does not fit" if least > free_bytes else "may not fit"
    return (
        f"activation_offloading pins {show_bytes(least)} of host memory, up to {_ROUNDED} times "
        f"that once torch has rounded it; {show_bytes(free_bytes)} is free: it {verdict}."
    )
