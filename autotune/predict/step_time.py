"""How long traced work takes on a device: a roofline over its operations.

Every kind of work takes the longer of its arithmetic and its memory traffic; kinds follow one
another. On an asynchronous device the host issues operations meanwhile, and the step lasts as long
as the slower of the two (S. Williams et al., "Roofline", 2009). Predicts; corrects nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.rates import Rates
from autotune.core.time_model import FloatArray
from autotune.core.traced_step import Work, WorkKind

#: A part of a step's time: a kind of work, or what operations cost however small they are.
Part = WorkKind | str
OVERHEAD = "overhead"


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, by part.

    Args:
        parts: seconds by kind of work, and under ``overhead`` what starting operations costs.
        host_seconds: what the host needs to issue the step's operations.
    """

    parts: Mapping[Part, float]
    host_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the step lasts."""
        return max(sum(self.parts.values()), self.host_seconds)


def step_time(work: Sequence[Work], rates: Rates) -> StepTime:
    """Return how long work takes on a device.

    Args:
        work: operations by kind and dtype.
        rates: what the device reaches.
    """
    parts: dict[Part, float] = {}
    launches = 0
    for one in work:
        count = max(one.launches, 1)
        arithmetic = rates.flops_of(one.kind, one.dtype)
        memory = rates.moved_of(one.kind, one.dtype)
        seconds = max(
            one.flops / arithmetic.at(one.flops / count) if arithmetic else 0.0,
            one.moved_bytes / memory.at(one.moved_bytes / count) if memory else 0.0,
        )
        parts[one.kind] = parts.get(one.kind, 0.0) + seconds
        launches += one.launches
    parts[OVERHEAD] = launches * rates.launch_seconds
    return StepTime(parts, launches * rates.dispatch_seconds)


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

    def at(self, padded_tokens: float, width: float) -> tuple[Work, ...]:
        """Return the work of one shape.

        Args:
            padded_tokens: computed positions of the micro-step.
            width: columns of its input tensor.
        """
        values = self.counts @ np.asarray([1.0, padded_tokens, padded_tokens * width])
        return tuple(
            Work(
                kind=kind,
                dtype=dtype,
                flops=max(0, round(flops)),
                moved_bytes=max(0, round(moved)),
                launches=max(0, round(launches)),
            )
            for (kind, dtype), (flops, moved, launches) in zip(self.keys, values, strict=True)
        )


def fit_work(traced: Sequence[tuple[float, float, Sequence[Work]]]) -> WorkModel:
    """Fit the work of any shape to traced ones.

    Args:
        traced: (padded tokens, width, work) of each, at least one; three different shapes
            determine everything, with fewer the work is taken as proportional to the tokens.
    """
    keys = tuple(dict.fromkeys((w.kind, w.dtype) for _, _, work in traced for w in work))
    shapes = sorted({(tokens, width) for tokens, width, _ in traced})
    features = np.asarray([[1.0, t, t * w] for t, w, _ in traced])
    used = [1] if len(shapes) == 1 else [0, 1] if len(shapes) == 2 else [0, 1, 2]
    counts = np.zeros((len(keys), 3, 3))
    for row, key in enumerate(keys):
        seen = np.asarray([_counted(work, key) for _, _, work in traced], dtype=np.float64)
        scale = features[:, used].max(axis=0)
        solved, *_ = np.linalg.lstsq(features[:, used] / scale, seen, rcond=None)
        counts[row][:, used] = (solved / scale[:, None]).T
    return WorkModel(keys, counts)


def _counted(work: Sequence[Work], key: tuple[WorkKind, str]) -> tuple[int, int, int]:
    mine = [w for w in work if (w.kind, w.dtype) == key]
    return (
        sum(w.flops for w in mine),
        sum(w.moved_bytes for w in mine),
        sum(w.launches for w in mine),
    )
