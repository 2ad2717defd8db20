"""What has to be traced to predict candidates: their worst batches, and some to time.

Pure; the tracing itself happens elsewhere. What it means is said in `autotune.predict.forecast`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.shapes import Shapes
from autotune.core.time_model import FloatArray
from autotune.knobs.facts import Facts
from autotune.knobs.passes import pass_shapes, passes_of_run
from autotune.knobs.retention import earned_ratio, useful_tokens_ratio
from autotune.knobs.translate import STEP_COUNTED, Settings, settings
from autotune.predict.micro_batches import (
    Rows,
    flattens,
    precomputes,
    reference_batches,
    timed_batches,
    worst_batch,
)
from autotune.predict.request import Target, TraceRequest

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
class Once:
    """The pass over the reference that is run once before training.

    Args:
        over: its batches.
        timed: batches the work of every shape is fitted to.
        passes: passes over the data set its time is shared by.
    """

    over: Pass
    timed: tuple[TraceRequest, ...]
    passes: float


@dataclass(frozen=True)
class Wanted:
    """What has to be traced to predict one candidate.

    Args:
        candidate: its knobs.
        settings: what it means to TRL.
        over: the micro-batches of one pass.
        deciding: the steps whose highest peak decides.
        timed: steps the work of every shape is fitted to, shared between alike candidates.
        once: the pass over the reference before training; None where there is none.
    """

    candidate: Candidate
    settings: Settings
    over: Pass
    deciding: tuple[TraceRequest, ...]
    timed: tuple[TraceRequest, ...]
    once: Once | None = None

    @property
    def requests(self) -> tuple[TraceRequest, ...]:
        """Everything that has to be traced for it."""
        once = () if self.once is None else self.once.timed
        return (*self.timed, *once, *self.deciding)


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

    def request(index: int, rows: Rows, *, precompute: bool = False) -> TraceRequest:
        options = {**facts.job.options, **translated[index].options}
        return TraceRequest(
            trainer=facts.job.trainer,
            model_dir=model_dir,
            options={k: v for k, v in options.items() if k not in _NOT_TRACED},
            rows=rows,
            accumulates=translated[index].accumulation > 1 and not precompute,
            precompute=precompute,
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
    found: list[Wanted] = []
    for index, candidate in enumerate(candidates):
        deciding = [request(index, worst_batch(candidate, facts))]
        once = None
        if precomputes(candidate, facts):
            batched = reference_batches(candidate, facts)
            shapes = pass_shapes(batched, translated[index], facts)
            deciding.append(request(index, worst_batch(batched, facts), precompute=True))
            updates = math.ceil(len(passes[index]) / translated[index].accumulation)
            once = Once(
                over=_pass(shapes, batched, facts),
                timed=tuple(
                    request(index, rows, precompute=True)
                    for rows in timed_batches([shapes], facts, flattened=flattens(candidate))
                ),
                passes=passes_of_run(translated[index], facts, updates),
            )
        over = _pass(passes[index], candidate, facts)
        found.append(
            Wanted(candidate, translated[index], over, tuple(deciding), timed[index], once)
        )
    return found


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
