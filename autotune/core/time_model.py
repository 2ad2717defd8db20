"""How long a micro-step of any shape takes, fitted to the steps that were timed.

A step's time is modelled as overhead + a per computed token + a per computed token x width
(attention), each at least zero: ``t = a + b * T + c * T * w``. Fitted by least squares of relative
errors over the timed steps, so that long and short shapes count alike. It only interpolates
between shapes of one candidate; it never compares candidates.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class TimeModel:
    """Predict the seconds of a micro-step from its shape.

    Args:
        coefficients: seconds, seconds per token, seconds per token and width.
        spread_ratio: median absolute deviation of measured against modelled times, relative.
    """

    coefficients: tuple[float, float, float]
    spread_ratio: float

    def seconds(self, padded_tokens: FloatArray, width: FloatArray) -> FloatArray:
        """Return the modelled seconds of every micro-step.

        Args:
            padded_tokens: float64[m], computed positions of each micro-step.
            width: float64[m], columns of each input tensor.
        """
        modelled: FloatArray = _features(padded_tokens, width) @ np.asarray(self.coefficients)
        return modelled


def fit(seconds: FloatArray, padded_tokens: FloatArray, width: FloatArray) -> TimeModel:
    """Fit the model to timed micro-steps.

    Args:
        seconds: float64[n], measured times, each above zero; n at least 1.
        padded_tokens: float64[n], computed positions.
        width: float64[n], columns of the input tensor.
    """
    features = _features(padded_tokens, width)
    first = _nonnegative(features / seconds[:, None])
    # Refit without the steps a busy machine disturbed: those far above the first fit.
    ratio = seconds / np.maximum(features @ first, 1e-12)
    deviation = np.median(np.abs(ratio - np.median(ratio)))
    calm = ratio <= np.median(ratio) + max(5.0 * float(deviation), 0.05)
    final = _nonnegative((features / seconds[:, None])[calm]) if calm.sum() >= 3 else first
    residual = np.abs(seconds / np.maximum(features @ final, 1e-12) - 1.0)
    return TimeModel(
        (float(final[0]), float(final[1]), float(final[2])), float(np.median(residual))
    )


def _features(padded_tokens: FloatArray, width: FloatArray) -> FloatArray:
    tokens = np.asarray(padded_tokens, dtype=np.float64)
    return np.stack([np.ones_like(tokens), tokens, tokens * width], axis=1)


def _nonnegative(features: FloatArray) -> FloatArray:
    """Solve ``features @ x = 1`` in least squares with every x at least zero.

    Three unknowns have seven non-empty supports; the best of their unconstrained solutions that
    is non-negative is the constrained optimum.
    """
    best, best_error = np.zeros(features.shape[1]), np.inf
    target = np.ones(len(features))
    scale = np.maximum(np.abs(features).max(axis=0), 1e-30)
    scaled = features / scale
    for size in (1, 2, 3):
        for support in itertools.combinations(range(features.shape[1]), size):
            columns = scaled[:, list(support)]
            solution, *_ = np.linalg.lstsq(columns, target, rcond=None)
            if (solution < 0).any():
                continue
            error = float(((columns @ solution - target) ** 2).sum())
            if error < best_error - 1e-12:
                best = np.zeros(features.shape[1])
                best[list(support)] = solution / scale[list(support)]
                best_error = error
    return best
