"""How long traced work takes on a device: a roofline over its operations.

Every kind of work takes the longer of its arithmetic and its memory traffic; kinds follow one
another. On an asynchronous device the host issues operations meanwhile, and the step lasts as long
as the slower of the two (S. Williams et al., "Roofline", 2009). Predicts; corrects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.rates import Curve, Rates
from autotune.core.time_model import FloatArray
from autotune.core.traced_step import Work, WorkKind

#: A part of a step's time: a kind of work, or ``overhead``: what starting operations costs.
Part = str
OVERHEAD: Part = "overhead"
#: Share of a checkpointed step's operations that are in its forward pass and its repetition; the
#: backward pass has about as many as both.
_IN_LAYERS_RATIO = 0.5


@dataclass(frozen=True)
class StepTimes:
    """Seconds of m steps, by part.

    Args:
        parts: float64[m] by kind of work and ``overhead``.
        host: float64[m], what the host needs to issue the operations of each.
        operations: float64[m], operations of each.
    """

    parts: Mapping[Part, FloatArray]
    host: FloatArray
    operations: FloatArray

    @property
    def seconds(self) -> FloatArray:
        """How long every step lasts: float64[m]."""
        return np.maximum(sum(self.parts.values(), np.zeros_like(self.host)), self.host)

    def summed(self, counts: FloatArray) -> StepTimes:
        """Return the steps as one, each taken as often as ``counts`` says: float64[m]."""
        parts = {name: (seconds @ counts)[None] for name, seconds in self.parts.items()}
        host, operations = (self.host @ counts)[None], (self.operations @ counts)[None]
        return StepTimes(parts, host, operations)

    def checkpointed_selectively(self, rates: Rates) -> StepTimes:
        """Return the steps with what Python costs there, where nothing hides it or on the host."""
        more = _IN_LAYERS_RATIO * self.operations * rates.selective_seconds
        if rates.dispatch_seconds:
            return StepTimes(self.parts, self.host + more, self.operations)
        parts = {**self.parts, OVERHEAD: self.parts[OVERHEAD] + more}
        return StepTimes(parts, self.host, self.operations)


@dataclass(frozen=True)
class WorkModel:
    """The work of a micro-step of any shape, from a few that were traced.

    Operations of a transformer are linear in computed tokens ``T`` and, for attention, in ``T``
    times the width ``w``; the rest does not depend on the shape. That is
    `autotune.core.time_model`'s form, fitted to counts instead of seconds.

    Args:
        keys: kind and dtype of every row.
        counts: float64[k, 3, 3], per row the coefficients of 1, T and T*w (last axis) of flops,
            bytes and launches (middle axis).
    """

    keys: tuple[tuple[WorkKind, str], ...]
    counts: FloatArray

    def times(self, padded_tokens: FloatArray, width: FloatArray, rates: Rates) -> StepTimes:
        """Return how long micro-steps take on a device.

        Args:
            padded_tokens: float64[m], computed positions of each.
            width: float64[m], columns of its input tensor.
            rates: what the device reaches.
        """
        tokens = np.asarray(padded_tokens, dtype=np.float64)
        features = np.stack([np.ones_like(tokens), tokens, tokens * width])
        return _times(self.keys, np.maximum(self.counts @ features, 0.0), rates)


def step_times(work: Sequence[Work], rates: Rates) -> StepTimes:
    """Return how long one step of this work takes on a device.

    Args:
        work: operations by kind and dtype.
        rates: what the device reaches.
    """
    keys = tuple((w.kind, w.dtype) for w in work)
    counts = np.asarray([[[w.flops], [w.moved_bytes], [w.launches]] for w in work], np.float64)
    return _times(keys, counts.reshape(len(work), 3, 1), rates)


def fit_work(traced: Sequence[tuple[float, float, Sequence[Work]]]) -> WorkModel:
    """Fit the work of any shape to traced ones.

    Args:
        traced: (padded tokens, width, work) of each, at least one; three different shapes
            determine everything, with fewer the work is taken as proportional to the tokens.
    """
    keys = tuple(dict.fromkeys((w.kind, w.dtype) for _, _, work in traced for w in work))
    shapes = {(tokens, width) for tokens, width, _ in traced}
    features = np.asarray([[1.0, t, t * w] for t, w, _ in traced])
    used = {1: [1], 2: [0, 1]}.get(len(shapes), [0, 1, 2])
    scale = features[:, used].max(axis=0)
    counts = np.zeros((len(keys), 3, 3))
    for row, key in enumerate(keys):
        seen = np.asarray([_counted(work, key) for _, _, work in traced], dtype=np.float64)
        solved, *_ = np.linalg.lstsq(features[:, used] / scale, seen, rcond=None)
        counts[row][:, used] = (solved / scale[:, None]).T
    return WorkModel(keys, counts)


def _times(keys: Sequence[tuple[WorkKind, str]], counts: FloatArray, rates: Rates) -> StepTimes:
    """Return times of counts: float64[k, 3, m], flops, bytes and launches of every kind."""
    parts: dict[Part, FloatArray] = {}
    for (kind, dtype), (flops, moved, launches) in zip(keys, counts, strict=True):
        operations = np.maximum(launches, 1.0)
        seconds = np.maximum(
            _taken(flops, operations, rates.flops_of(kind, dtype)),
            _taken(moved, operations, rates.moved_of(kind, dtype)),
        )
        parts[kind] = parts[kind] + seconds if kind in parts else seconds
    started = counts[:, 2].sum(axis=0)
    parts[OVERHEAD] = started * rates.launch_seconds
    return StepTimes(parts, started * rates.dispatch_seconds, started)


def _taken(amount: FloatArray, operations: FloatArray, curve: Curve | None) -> FloatArray:
    if curve is None:
        return np.zeros_like(amount)
    return amount / curve.at(amount / operations)


def _counted(work: Sequence[Work], key: tuple[WorkKind, str]) -> tuple[int, int, int]:
    mine = [w for w in work if (w.kind, w.dtype) == key]
    return (
        sum(w.flops for w in mine),
        sum(w.moved_bytes for w in mine),
        sum(w.launches for w in mine),
    )
