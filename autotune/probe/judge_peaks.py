"""Judges the peaks of a probe that ran to its end: allowed, and not growing any more? Pure."""

from __future__ import annotations

from autotune.core.measurement import Measurement
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.stages import EVAL, IN_WORDS, MEMORY, MIXED, PHASES, SAVE
from autotune.core.units import show_bytes
from autotune.probe.observed import Observed

#: Updates of a verification that allocate optimizer states and caches and are not compared; then
#: the last window's highest peak may be this much above the first's (DESIGN.md 5.9).
_WARM_UP_UPDATES = 2
_WINDOW_UPDATES = 5
_GROWTH_RATIO = 0.005
#: The allocator takes memory from the device in segments of up to this size (``kLargeBuffer`` in
#: c10/cuda/CUDACachingAllocator.cpp, torch 2.13): one more is no trend.
_SEGMENT_BYTES = 20 * 2**20
#: A job that may use this share of what is free has the whole device: displays and daemons move.
_WHOLE_DEVICE = 0.98


def over_budget(measurement: Measurement, seen: Observed) -> tuple[Ending, int] | None:
    """Return how a probe ended that held more than it may, and how much; None when it did not.

    Args:
        measurement: what it measured.
        seen: what else was observed.
    """
    return _over(measurement, seen) or _over_after_training(measurement, seen)


def _over(measurement: Measurement, seen: Observed) -> tuple[Ending, int] | None:
    """Return the ending of a probe whose highest peak is more than it may have, else None."""
    peak = _charged(measurement, seen)
    if peak is None:
        return None
    phase, where = PHASES.get(measurement.peak_stage or "", Phase.STEADY), measurement.peak_where
    total_bytes, free_bytes = seen.device_total_bytes, seen.device_free_bytes
    if total_bytes is not None and peak > total_bytes:
        reason = (
            f"its peak of {show_bytes(peak)}{where} is above the device's {show_bytes(total_bytes)}"
        )
        return Ending(outcome=Outcome.SPILLED, phase=phase, reason=reason), peak
    cap = None if seen.device == "cpu" else seen.cap_bytes
    if cap is not None and peak > cap:
        # The cap holds torch's allocator; what kernels and libraries take beside it shows here.
        paged = measurement.peaks.paged_bytes
        states = f" with {show_bytes(paged)} of paged optimizer states" if paged else ""
        reason = (
            f"it needs {show_bytes(peak)}{states}{where}, more than the cap of {show_bytes(cap)}"
        )
        return Ending(outcome=Outcome.OOM_DEVICE, phase=phase, reason=reason), peak
    if free_bytes is not None and peak > free_bytes:
        reason = (
            f"its peak of {show_bytes(peak)}{where} is above the {show_bytes(free_bytes)} that "
            "were free on the device when it started"
        )
        return Ending(outcome=Outcome.SPILLED, phase=phase, reason=reason), peak
    return None


def _charged(measurement: Measurement, seen: Observed) -> int | None:
    """Return the peak that is held against the limits.

    States of a paged optimizer stay on the device for as long as it has room. On a device with more
    than the job may use they are beyond the job's share, and a smaller device would be slower than
    was measured: they count. Where the job has the whole device, what was measured is the truth: it
    ran, and states that had no room were paged out within the times.
    """
    peaks = measurement.peaks
    room = seen.device_free_bytes or seen.device_total_bytes
    share = seen.budget_bytes
    if peaks.deciding_bytes is None or not peaks.paged_bytes or room is None or share is None:
        return peaks.deciding_bytes
    if share < _WHOLE_DEVICE * room:
        return peaks.deciding_bytes
    return peaks.deciding_bytes - peaks.paged_bytes


def _over_after_training(measurement: Measurement, seen: Observed) -> tuple[Ending, int] | None:
    """Return the ending of a verification that saved or evaluated in more than it may have.

    On a CPU these stages run without the cap, since they are watched. Live bytes can be
    more than the cap counts (weights mapped from a file), so what training held counts as fitting.
    """
    if seen.device != "cpu" or seen.cap_bytes is None:
        return None
    held = {name: p.allocated_bytes or 0 for name, p in measurement.stage_peaks.items()}
    fits_bytes = max(seen.cap_bytes, held.get(MEMORY, 0), held.get(MIXED, 0))
    for stage in (SAVE, EVAL):
        if held.get(stage, 0) > fits_bytes:
            reason = (
                f"it needs {show_bytes(held[stage])} {IN_WORDS[stage]}, more than the cap of "
                f"{show_bytes(seen.cap_bytes)}"
            )
            ending = Ending(outcome=Outcome.OOM_HOST, phase=PHASES[stage], reason=reason)
            return ending, held[stage]
    return None


def growing(measurement: Measurement) -> str:
    """Say that memory still grows from update to update; empty when it does not (DESIGN.md 5.9)."""
    live = _grown(measurement.update_peaks_bytes, 0)
    held = _grown(measurement.update_reserved_bytes, _SEGMENT_BYTES)
    if live is None and held is None:
        return ""
    count = len(measurement.update_peaks_bytes)
    what = "memory" if live is not None else "what torch's allocator reserves"
    first, last = live or held or (0, 0)
    return (
        f"{what} is still growing after {count} updates: from {show_bytes(first)} to "
        f"{show_bytes(last)}, so it is not safe for a whole run"
    )


def _grown(bytes_: tuple[int, ...], slack_bytes: int) -> tuple[int, int] | None:
    """Return what the first and the last window hold at most, where the last holds more.

    Mixed batches repeat after as many updates as a window has, so both hold the same batches.

    Args:
        bytes_: of every update of a verification; fewer than twelve say nothing.
        slack_bytes: growth that means nothing.
    """
    if len(bytes_) < _WARM_UP_UPDATES + 2 * _WINDOW_UPDATES:
        return None
    settled = bytes_[_WARM_UP_UPDATES:]
    first, last = max(settled[:_WINDOW_UPDATES]), max(settled[-_WINDOW_UPDATES:])
    return (first, last) if last > first * (1.0 + _GROWTH_RATIO) + slack_bytes else None
