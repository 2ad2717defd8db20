"""From candidates to predictions: what has to be traced, and what the traces mean for a pass.

Pure: the tracing itself happens elsewhere, between `wanted` and `predict`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.prediction import NotTraced, Prediction
from autotune.core.rates import Rates
from autotune.core.shapes import Shapes
from autotune.core.time_model import FloatArray
from autotune.core.traced_step import TracedStep
from autotune.knobs.facts import Facts
from autotune.knobs.passes import pass_shapes
from autotune.knobs.retention import earned_ratio, useful_tokens_ratio
from autotune.knobs.translate import STEP_COUNTED, Settings, settings
from autotune.predict.calibrate import PeakCorrection, TimeCorrection
from autotune.predict.micro_batches import Rows, flattens, shape_of, timed_batches, worst_batch
from autotune.predict.request import Target, TraceRequest
from autotune.predict.step_time import StepTimes, WorkModel, fit_work, step_times

#: Knobs a fit of work over shapes is shared across: they change shapes and nothing else.
_SHAPES_ONLY = ("per_device_train_batch_size", "max_length", "pad_to_multiple_of")
#: Options a single step does not depend on: rows are given as wide as they are padded.
_NOT_TRACED = ("pad_to_multiple_of", *STEP_COUNTED)
#: More than any tensor is wide.
_WIDER = 1 << 31


@dataclass(frozen=True, eq=False)
class Pass:
    """The micro-batches of one pass over the data set, equal ones counted together.

    Args:
        tokens: float64[m], computed positions of the different shapes.
        width: float64[m], columns of their input tensor.
        counts: float64[m], how often each comes.
        useful_tokens: tokens of the pass that earn something.
        kept_ratio: share of the reference's label tokens that count as kept, 0..1.
    """

    tokens: FloatArray
    width: FloatArray
    counts: FloatArray
    useful_tokens: int
    kept_ratio: float

    @property
    def micro_steps(self) -> int:
        """Micro-steps of the pass."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class Wanted:
    """What has to be traced to predict one candidate.

    Args:
        candidate: its knobs.
        settings: what it means to TRL.
        over: the micro-batches of one pass.
        memory: the step whose peak decides.
        timed: steps the work of every shape is fitted to, shared between alike candidates.
    """

    candidate: Candidate
    settings: Settings
    over: Pass
    memory: TraceRequest
    timed: tuple[TraceRequest, ...]


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
        work: work of a micro-step of any shape.
    """

    wanted: Wanted
    step: TracedStep
    work: WorkModel


def key_of(request: TraceRequest) -> str:
    """Return a text that is equal exactly when two requests are."""
    return json.dumps(request.model_dump(mode="json"), sort_keys=True)


def wanted(
    candidates: Sequence[Candidate], facts: Facts, model_dir: str, target: Target
) -> list[Wanted]:
    """Return what has to be traced for candidates, in their order.

    Args:
        candidates: canonical candidates.
        facts: job, rows and the device predicted for.
        model_dir: folder with the model's config.
        target: the kind of that device.
    """
    translated = [settings(c, facts) for c in candidates]
    passes = [pass_shapes(c, s, facts) for c, s in zip(candidates, translated, strict=True)]

    def request(index: int, rows: Rows) -> TraceRequest:
        options = {**facts.job.options, **translated[index].options}
        return TraceRequest(
            trainer=facts.job.trainer,
            model_dir=model_dir,
            options={k: v for k, v in options.items() if k not in _NOT_TRACED},
            rows=rows,
            accumulates=translated[index].accumulation > 1,
            target=target,
            capability=facts.device.capability,
        )

    families: dict[str, list[int]] = {}
    for index, candidate in enumerate(candidates):
        families.setdefault(_family(candidate, translated[index]), []).append(index)
    timed: dict[int, tuple[TraceRequest, ...]] = {}
    for members in families.values():
        batches = timed_batches(
            [passes[i] for i in members], facts, flattened=flattens(candidates[members[0]])
        )
        shared = tuple(request(members[0], rows) for rows in batches)
        timed.update(dict.fromkeys(members, shared))
    return [
        Wanted(
            candidate=candidate,
            settings=translated[index],
            over=_pass(passes[index], candidate, facts),
            memory=request(index, worst_batch(candidate, facts)),
            timed=timed[index],
        )
        for index, candidate in enumerate(candidates)
    ]


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
        step = traced[key_of(one.memory)]
        steps = [(request, traced[key_of(request)]) for request in one.timed]
        known = [(r, s) for r, s in steps if isinstance(s, TracedStep)]
        if not isinstance(step, TracedStep) or not known:
            reason = step if isinstance(step, str) else next(str(s) for _, s in steps)
            refused.append(NotTraced(candidate=one.candidate, reason=reason))
            continue
        flat = flattens(one.candidate)
        model = fit_work([(*shape_of(r.rows, flattened=flat), s.micro_step) for r, s in known])
        found.append(Foreseen(one, step, model))
    return found, refused


@dataclass(frozen=True)
class Timed:
    """How long a candidate's steps take on a device, uncorrected.

    Args:
        micro: micro-steps of every shape of the pass.
        update: one optimizer update.
    """

    micro: StepTimes
    update: StepTimes


def timed(foreseen: Foreseen, rates: Rates) -> Timed:
    """Return how long a candidate's steps take.

    Args:
        foreseen: the candidate and its traces.
        rates: what the device reaches.
    """
    over = foreseen.wanted.over
    return Timed(
        micro=micro_times(foreseen, over.tokens, over.width, rates),
        update=step_times(foreseen.step.optimizer_step, rates),
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
    one, step = foreseen.wanted, foreseen.step
    steps = corrections.micro.corrected(times.micro)
    micro = float(steps.seconds @ one.over.counts)
    update = float(corrections.update.corrected(times.update).seconds[0])
    updates = math.ceil(one.over.micro_steps / one.settings.accumulation)
    seconds = max(micro + updates * update, 1e-9)
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
        offloaded_bytes=step.offloaded_bytes,
        micro_steps=one.over.micro_steps,
        micro_step_seconds=micro / max(1, one.over.micro_steps),
        optimizer_seconds=update,
        parts_seconds={n: float(s @ one.over.counts) for n, s in steps.parts.items()},
        pass_seconds=seconds,
        score_seconds=seconds / max(one.over.kept_ratio, 1e-9),
        useful_tokens_per_s=one.over.useful_tokens / seconds,
        time_band_ratio=corrections.micro.band_ratio,
        calibrated_by=corrections.micro.probes,
        notes=step.notes,
    )


def _family(candidate: Candidate, translated: Settings) -> str:
    kept = {k: v for k, v in candidate.knobs.items() if k not in _SHAPES_ONLY}
    return json.dumps([kept, translated.accumulation > 1], sort_keys=True)


def _pass(shapes: Shapes, candidate: Candidate, facts: Facts) -> Pass:
    # One number per shape makes counting equal ones a plain sort.
    keys = shapes.padded_tokens * _WIDER + shapes.width
    different, counts = np.unique(keys, return_counts=True)
    return Pass(
        tokens=(different // _WIDER).astype(np.float64),
        width=(different % _WIDER).astype(np.float64),
        counts=counts.astype(np.float64),
        useful_tokens=int(shapes.useful_tokens.sum() * useful_tokens_ratio(candidate, facts)),
        kept_ratio=earned_ratio(candidate, facts),
    )
