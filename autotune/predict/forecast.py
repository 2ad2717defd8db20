"""From candidates to predictions: what has to be traced, and what the traces mean for a pass.

Pure: the tracing itself happens elsewhere, between `autotune.predict.wanted` and `predict`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.core.candidate import Candidate
from autotune.core.prediction import NotTraced, Prediction
from autotune.core.rates import Rates
from autotune.core.time_model import FloatArray
from autotune.core.traced_step import TracedStep
from autotune.predict.calibrate import PeakCorrection, TimeCorrection
from autotune.predict.micro_batches import (
    flattens,
    shape_of,
)
from autotune.predict.request import TraceRequest
from autotune.predict.step_time import StepTimes, WorkModel, fit_work, step_times
from autotune.predict.wanted import Wanted


@dataclass(frozen=True)
class Corrections:
    """What finished probes say about predictions.

    Args:
        micro: of micro-steps.
        update: of optimizer updates.
        peak: of peaks.
    """

    micro: TimeCorrection = field(default_factory=TimeCorrection)
    update: TimeCorrection = field(default_factory=TimeCorrection)
    peak: PeakCorrection = field(default_factory=PeakCorrection)


@dataclass(frozen=True)
class Foreseen:
    """A candidate whose steps were traced; independent of any device.

    Args:
        wanted: what was asked.
        step: the traced step of the worst micro-batch.
        peak: the step whose peak is highest: that one, or the pass over the reference.
        work: work of a micro-step of any shape.
        once: work of a batch of the pass over the reference; None where there is none.
    """

    wanted: Wanted
    step: TracedStep
    peak: TracedStep
    work: WorkModel
    once: WorkModel | None = None


def key_of(request: TraceRequest) -> str:
    """Return a text that is equal exactly when two requests are."""
    return json.dumps(request.model_dump(mode="json"), sort_keys=True)


def foresee(
    asked: Sequence[Wanted], traced: Mapping[str, TracedStep | str]
) -> tuple[list[Foreseen], list[NotTraced]]:
    """Join candidates with their traces.

    Args:
        asked: from `wanted`.
        traced: by `key_of` a request, its step, or the reason why there is none.

    Returns:
        The candidates that were traced, and those that were not, with the reason.
    """
    found: list[Foreseen] = []
    refused: list[NotTraced] = []
    for one in asked:
        deciding = [traced[key_of(request)] for request in one.deciding]
        steps = [step for step in deciding if isinstance(step, TracedStep)]
        work = _fitted(one.candidate, one.timed, traced)
        once = None if one.once is None else _fitted(one.candidate, one.once.timed, traced)
        refusals = [r for r in (*deciding, work, once) if isinstance(r, str)]
        if refusals:
            refused.append(NotTraced(candidate=one.candidate, reason=refusals[0]))
            continue
        assert isinstance(work, WorkModel) and not isinstance(once, str)
        highest = max(steps, key=lambda step: step.peak_bytes)
        found.append(Foreseen(one, steps[0], highest, work, once))
    return found, refused


def _fitted(
    candidate: Candidate,
    requests: Sequence[TraceRequest],
    traced: Mapping[str, TracedStep | str],
) -> WorkModel | str:
    """Return the work of any shape, from traced ones; why there is none where none was traced."""
    steps = [(request, traced[key_of(request)]) for request in requests]
    known = [(r, s) for r, s in steps if isinstance(s, TracedStep)]
    if not known:
        return next(str(step) for _, step in steps)
    flat = flattens(candidate)
    return fit_work([(*shape_of(r.rows, flattened=flat), s.micro_step) for r, s in known])


@dataclass(frozen=True)
class Timed:
    """How long a candidate's steps take on a device, uncorrected.

    Args:
        micro: micro-steps of every shape of the pass.
        update: one optimizer update.
        once: batches of every shape of the pass over the reference; None where there is none.
    """

    micro: StepTimes
    update: StepTimes
    once: StepTimes | None = None


def timed(foreseen: Foreseen, rates: Rates) -> Timed:
    """Return how long a candidate's steps take.

    Args:
        foreseen: the candidate and its traces.
        rates: what the device reaches.
    """
    over, asked = foreseen.wanted.over, foreseen.wanted.once
    once = None
    if asked is not None and foreseen.once is not None:
        once = foreseen.once.times(asked.over.tokens, asked.over.width, rates)
    return Timed(
        micro=micro_times(foreseen, over.tokens, over.width, rates),
        update=step_times(foreseen.step.optimizer_step, rates),
        once=once,
    )


def micro_times(
    foreseen: Foreseen, tokens: FloatArray, width: FloatArray, rates: Rates
) -> StepTimes:
    """Return how long a candidate's micro-steps of given shapes take.

    Args:
        foreseen: the candidate and its traces.
        tokens: float64[m], computed positions of each.
        width: float64[m], columns of its input tensor.
        rates: what the device reaches.
    """
    times = foreseen.work.times(tokens, width, rates)
    selective = foreseen.wanted.candidate.get("gradient_checkpointing") == "selective"
    return times.checkpointed_selectively(rates) if selective else times


def predict(foreseen: Foreseen, times: Timed, corrections: Corrections) -> Prediction:
    """Return what one traced candidate is expected to need and to take on a device.

    Args:
        foreseen: the candidate and its traces.
        times: how long its steps take, uncorrected.
        corrections: what probes on the device say so far.
    """
    one, step = foreseen.wanted, foreseen.peak
    steps = corrections.micro.corrected(times.micro)
    micro = float(steps.seconds @ one.over.counts)
    update = float(corrections.update.corrected(times.update).seconds[0])
    updates = math.ceil(one.over.micro_steps / one.settings.accumulation)
    seconds = max(micro + updates * update, 1e-9)
    once = each = 0.0
    if one.once is not None and times.once is not None:
        once = float(corrections.micro.corrected(times.once).seconds @ one.once.over.counts)
        each = once / one.once.passes
    peak = corrections.peak.peak_bytes(step.peak_bytes)
    band = 1.0 + corrections.peak.band_ratio
    return Prediction(
        candidate=one.candidate,
        accumulation=one.settings.accumulation,
        peak_bytes=peak,
        low_bytes=int(peak / band),
        high_bytes=int(peak * band),
        traced_bytes=step.peak_bytes,
        split=step.split,
        phase=step.phase,
        offloaded_bytes=max(foreseen.step.offloaded_bytes, step.offloaded_bytes),
        micro_steps=one.over.micro_steps,
        micro_step_seconds=micro / max(1, one.over.micro_steps),
        optimizer_seconds=update,
        parts_seconds={n: float(s @ one.over.counts) for n, s in steps.parts.items()},
        pass_seconds=seconds,
        precompute_seconds=once,
        score_seconds=(seconds + each) / max(one.over.kept_ratio, 1e-9),
        useful_tokens_per_s=one.over.useful_tokens / seconds,
        time_band_ratio=corrections.micro.band_ratio,
        calibrated_by=corrections.micro.probes,
        notes=step.notes,
    )
