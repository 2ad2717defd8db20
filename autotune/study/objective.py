"""What a measurement means for the whole data set: the number candidates are compared by."""

from __future__ import annotations

import math

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.kept import SPLITTING
from autotune.core.measurement import Measurement
from autotune.core.result import Estimate
from autotune.core.shapes import Shapes
from autotune.core.time_model import fit
from autotune.knobs.facts import Facts
from autotune.knobs.passes import pass_shapes
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
    steps = measurement.timed_steps
    if not steps:
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
    once = precompute_seconds(measurement, shapes)
    each = seconds + once / passes(settings, facts, updates)
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
    )


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


def passes(settings: Settings, facts: Facts, updates: int) -> float:
    """Return how often the user's run goes over the data, by which what is run once is divided.

    Args:
        settings: what the candidate means to TRL.
        facts: job, rows and machine.
        updates: optimizer updates in one pass.
    """
    steps = int(settings.options.get("max_steps") or facts.option("max_steps") or -1)
    if steps > 0:
        return steps / max(1, updates)
    return float(facts.option("num_train_epochs") or 1.0)
