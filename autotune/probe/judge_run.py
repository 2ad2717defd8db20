"""Judges a probe that ran to its end: did it train, and in memory it may have? Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.core.measurement import ADAPTER, Measurement, Step
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.time_model import FloatArray, fit
from autotune.core.units import show_bytes
from autotune.probe.observed import Observed

#: A step this much slower than others of its shape did not run in device memory (DESIGN.md 5.3).
_SPILL_SLOWDOWN = 10.0
#: Updates of a verification that allocate optimizer states and caches and are not compared; then
#: the last window's highest peak may be this much above the first's (DESIGN.md 5.9).
_WARM_UP_UPDATES = 2
_WINDOW_UPDATES = 5
_GROWTH_RATIO = 0.005
#: A job that may use this share of what is free has the whole device: displays and daemons move.
_WHOLE_DEVICE = 0.98


def judge_run(measurement: Measurement, seen: Observed) -> tuple[Ending, int | None]:
    """Return how a probe that ran to its end ended: it must really have trained (DESIGN.md 5.12).

    Args:
        measurement: what it measured.
        seen: what else was observed.

    Returns:
        The ending, and the least memory it is known to need when it did not fit.
    """
    total_bytes = seen.device_total_bytes
    steps = [*measurement.memory_steps, *measurement.timed_steps]
    if not measurement.memory_steps:
        return _nothing("no step was run"), None
    peak = _charged(measurement, seen)
    if total_bytes is not None and peak is not None and peak > total_bytes:
        reason = f"its peak of {show_bytes(peak)} is above the device's {show_bytes(total_bytes)}"
        return Ending(outcome=Outcome.SPILLED, phase=Phase.STEADY, reason=reason), peak
    cap = None if seen.device == "cpu" else seen.cap_bytes
    if cap is not None and peak is not None and peak > cap:
        # The cap holds torch's allocator; what kernels and libraries take beside it shows here.
        paged = measurement.peaks.paged_bytes
        states = f" with {show_bytes(paged)} of paged optimizer states" if paged else ""
        reason = f"it needs {show_bytes(peak)}{states}, more than the cap of {show_bytes(cap)}"
        return Ending(outcome=Outcome.OOM_DEVICE, phase=Phase.STEADY, reason=reason), peak
    free_bytes = seen.device_free_bytes
    if free_bytes is not None and peak is not None and peak > free_bytes:
        reason = (
            f"its peak of {show_bytes(peak)} is above the {show_bytes(free_bytes)} that were free "
            "on the device when it started"
        )
        return Ending(outcome=Outcome.SPILLED, phase=Phase.STEADY, reason=reason), peak
    if any(step.loss is None for step in steps) or None in measurement.grad_norms:
        return Ending(
            outcome=Outcome.NON_FINITE,
            phase=Phase.STEADY,
            reason="the loss or the gradient norm was not finite",
        ), None
    if all(step.label_tokens == 0 for step in steps):
        return _nothing("no token was trained on: every label is masked"), None
    if measurement.grad_norms and max(n or 0.0 for n in measurement.grad_norms) == 0.0:
        return _nothing("the gradient norm was zero at every update: nothing is trained"), None
    if measurement.trained_modules == len(measurement.unreached_modules):
        return _nothing("no gradient reached any trained module: nothing is trained"), None
    idle = measurement.idle_adapters
    if idle and seen.checkpointing == "reentrant":
        # Other variants lose no gradient: there it is the model that does not use what is adapted.
        ending = _nothing(
            f"no gradient reached {len(idle)} of {measurement.trained_modules} trained modules, "
            f"such as the adapter of {idle[0].removesuffix(ADAPTER)}, which would stay as it is "
            "(gradient checkpointing with use_reentrant needs inputs that require a gradient)"
        )
        return ending.model_copy(update={"causes": ("gradient_checkpointing", "peft")}), None
    growing = _growing(measurement.update_peaks_bytes)
    if growing:
        return _nothing(growing), None
    return Ending(outcome=Outcome.FITS, phase=Phase.STEADY), None


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


def _growing(peaks_bytes: tuple[int, ...]) -> str:
    """Say that memory still grows from update to update; empty when it does not (DESIGN.md 5.9).

    Args:
        peaks_bytes: peak of every update of a verification; fewer than twelve say nothing.
    """
    if len(peaks_bytes) < _WARM_UP_UPDATES + 2 * _WINDOW_UPDATES:
        return ""
    settled = peaks_bytes[_WARM_UP_UPDATES:]
    first, last = max(settled[:_WINDOW_UPDATES]), max(settled[-_WINDOW_UPDATES:])
    if last <= first * (1.0 + _GROWTH_RATIO):
        return ""
    return (
        f"memory is still growing after {len(peaks_bytes)} updates: from {show_bytes(first)} to "
        f"{show_bytes(last)}, so it is not safe for a whole run"
    )


def _nothing(reason: str) -> Ending:
    return Ending(outcome=Outcome.INVALID, phase=Phase.STEADY, reason=reason)


def spilled_by_time(measurement: Measurement, others: Sequence[Measurement]) -> Ending | None:
    """Return a `spilled` ending when steps are far slower than others of their shape, else None.

    A driver that pages to host memory raises nothing; only time shows it. The times of the other
    measurements, together, say what steps of these shapes take.

    Args:
        measurement: a probe that ran to its end.
        others: probes of other candidates that fit; fewer than two say nothing.
    """
    known = [step for other in others for step in other.timed_steps]
    mine = measurement.timed_steps
    if len(others) < 2 or not mine:
        return None
    seconds, tokens, width = _columns(known)
    expected = fit(seconds, tokens, width).seconds(*_columns(mine)[1:])
    ratio = float(np.median(_columns(mine)[0] / np.maximum(expected, 1e-9)))
    if ratio <= _SPILL_SLOWDOWN:
        return None
    return Ending(
        outcome=Outcome.SPILLED,
        phase=Phase.STEADY,
        reason=f"its steps took {ratio:.0f} times as long as others of their shape: "
        "the driver seems to page to host memory",
    )


def _columns(steps: Sequence[Step]) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (
        np.asarray([s.seconds for s in steps], dtype=np.float64),
        np.asarray([s.padded_tokens for s in steps], dtype=np.float64),
        np.asarray([s.width for s in steps], dtype=np.float64),
    )
