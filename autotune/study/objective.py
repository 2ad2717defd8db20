"""What a measurement means for the whole data set: the number candidates are compared by."""

from __future__ import annotations

import math

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.kept import SPLITTING
from autotune.core.measurement import Measurement
from autotune.core.result import Estimate
from autotune.core.shapes import Shapes
from autotune.core.time_model import TimeModel, fit
from autotune.knobs.facts import Facts
from autotune.knobs.passes import pass_shapes, passes_of_run
from autotune.knobs.retention import documents_of, earned_ratio, retention, useful_tokens_ratio
from autotune.knobs.translate import Settings
from autotune.study.emptying import emptying_seconds, rhythm, undisturbed


def estimate(
    candidate: Candidate, settings: Settings, measurement: Measurement, facts: Facts
) -> Estimate | None:
    """Return the expected cost of one pass over the data, or None when nothing was timed.

    Micro-step time as a function of shape is fitted to the timed steps and summed over the shapes
    the sampler yields on the whole data set; the optimizer's median time is added per update.

    Args:
        candidate: what was measured.
        settings: what it means to TRL.
        measurement: its timed steps.
        facts: job, rows and machine.
    """
    steps = measurement.steady_steps
    if not steps or not measurement.optimizer_seconds:
        return None
    shapes = pass_shapes(candidate, settings, facts)
    every = rhythm(settings, facts)
    calm = undisturbed(steps, every)
    model = fit(
        np.asarray([s.seconds for s in calm]),
        np.asarray([s.padded_tokens for s in calm], dtype=np.float64),
        np.asarray([s.width for s in calm], dtype=np.float64),
    )
    updates = math.ceil(len(shapes) / settings.accumulation)
    micro = model.seconds(
        shapes.padded_tokens.astype(np.float64), shapes.width.astype(np.float64)
    ).sum()
    emptying = emptying_seconds(steps, model, every, len(shapes))
    seconds = float(micro) + updates * float(np.median(measurement.optimizer_seconds))
    seconds += emptying or 0.0
    earned = earned_ratio(candidate, facts)
    different = len(set(zip(shapes.tensor_rows.tolist(), shapes.width.tolist(), strict=True)))
    once = precompute_seconds(measurement, shapes)
    each = seconds + once / passes_of_run(settings, facts, updates)
    trained, padded = int(shapes.useful_tokens.sum()), int(shapes.padded_tokens.sum())
    labels = earned * facts.reference.labels(facts.lengths.trained)
    total = int(facts.lengths.trained.both_sides(None).sum())
    dropped = 1.0 - trained / total if total else 0.0
    documents = documents_of(candidate, facts)
    length = candidate.get("max_length")
    splits = candidate.get("packing") in SPLITTING
    return Estimate(
        pass_seconds=seconds,
        score_seconds=each / max(earned, 1e-9),
        retention_ratio=retention(candidate, facts),
        useful_tokens_per_s=trained * useful_tokens_ratio(candidate, facts) / seconds,
        padded_tokens_per_s=padded / seconds,
        label_tokens_per_s=labels / seconds,
        padding_ratio=shapes.padding_ratio,
        sequences_per_update=settings.sequences_per_update,
        updates_per_pass=updates,
        rows_cut=facts.lengths.rows_cut(None if splits or length is None else int(length)),
        rows_dropped=documents.left_out,
        rows_split=documents.split,
        rows_unlabelled=documents.unlabelled,
        tokens_dropped_ratio=min(1.0, max(0.0, dropped)),
        spread_ratio=model.spread_ratio,
        precompute_seconds=once,
        emptying_seconds=emptying,
        first_use_seconds=different * first_use_seconds(measurement, model),
        shapes=different,
    )


def first_use_seconds(measurement: Measurement, model: TimeModel) -> float:
    """Return how much longer a first use of a shape takes than later ones, the median.

    Args:
        measurement: its first uses are compared with what the model says of their shapes.
        model: fitted to its steady steps.
    """
    firsts = [s for s in (*measurement.warmup_steps, *measurement.timed_steps) if s.first_use]
    if not firsts:
        return 0.0
    later = model.seconds(
        np.asarray([s.padded_tokens for s in firsts], dtype=np.float64),
        np.asarray([s.width for s in firsts], dtype=np.float64),
    )
    return max(0.0, float(np.median([s.seconds for s in firsts] - later)))


def precompute_seconds(measurement: Measurement, shapes: Shapes) -> float:
    """Return what the one-off pass over the reference takes on the whole data set.

    Args:
        measurement: of a probe, whose own pass over fewer tokens was timed.
        shapes: the micro-batches of one pass over the data set.
    """
    once = measurement.precompute
    if once is None or not once.tokens:
        return 0.0
    return once.seconds * float(shapes.useful_tokens.sum()) / once.tokens
