"""Judges a probe that ran to its end: did it train, and in memory it may have? Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.core.measurement import ADAPTER, Measurement, Step
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.time_model import FloatArray, fit
from autotune.probe.judge_peaks import growing, over_budget
from autotune.probe.observed import Observed

#: A step this much slower than others of its shape did not run in device memory (DESIGN.md 5.3).
_SPILL_SLOWDOWN = 10.0
#: Updates that must have taken place: the second has optimizer states.
_LEAST_UPDATES = 2


def judge_run(measurement: Measurement, seen: Observed) -> tuple[Ending, int | None]:
    """Return how a probe that ran to its end ended: it must really have trained (DESIGN.md 5.12).

    Args:
        measurement: what it measured.
        seen: what else was observed.

    Returns:
        The ending, and the least memory it is known to need when it did not fit.
    """
    steps = [*measurement.memory_steps, *measurement.timed_steps]
    if not measurement.memory_steps:
        return _nothing("no step was run"), None
    over = over_budget(measurement, seen)
    if over is not None:
        return over
    if any(step.loss is None for step in steps):
        return _not_finite(), None
    if measurement.skipped_updates and _never_settled(measurement):
        return Ending(
            outcome=Outcome.NON_FINITE,
            phase=Phase.OPTIMIZER_STEP,
            reason=f"the gradient scaler skipped {measurement.skipped_updates} updates and did not "
            "settle: gradients overflow in fp16 at every scale; bf16 has a wider range",
        ), None
    if None in measurement.grad_norms:
        return _not_finite(), None
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
    grows = growing(measurement)
    if grows:
        return _nothing(grows), None
    return Ending(outcome=Outcome.FITS, phase=Phase.STEADY), None


def _never_settled(measurement: Measurement) -> bool:
    """Whether a run whose gradient scaler skipped updates did not come to train after that."""
    few = measurement.updates is not None and measurement.updates < _LEAST_UPDATES
    return few or bool(measurement.timed_steps and not measurement.optimizer_seconds)


def _not_finite() -> Ending:
    return Ending(
        outcome=Outcome.NON_FINITE,
        phase=Phase.STEADY,
        reason="the loss or the gradient norm was not finite",
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
    known = [step for other in others for step in other.steady_steps]
    mine = measurement.steady_steps
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
