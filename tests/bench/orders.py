"""Counts how often two rankings agree on pairs that truly differ."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Agreement:
    """How many pairs were told apart rightly, of how many."""

    right: int
    pairs: int

    @property
    def ratio(self) -> float:
        """Share that is right, 0..1; nothing to tell apart is all right."""
        return self.right / self.pairs if self.pairs else 1.0

    def plus(self, other: Agreement) -> Agreement:
        """Return both counted together."""
        return Agreement(self.right + other.right, self.pairs + other.pairs)


def agreement(
    truth: Mapping[Hashable, float], guess: Mapping[Hashable, float], apart_ratio: float
) -> Agreement:
    """Count the pairs a guess orders as the truth does; a tie of the guess is wrong.

    Args:
        truth: what was measured, above zero.
        guess: what was predicted, of at least the same keys.
        apart_ratio: least relative difference for a pair to count, such as 0.1.
    """
    right = pairs = 0
    for a, b in itertools.combinations(truth, 2):
        low, high = sorted((truth[a], truth[b]))
        if high / low - 1.0 < apart_ratio:
            continue
        pairs += 1
        right += (truth[a] - truth[b]) * (guess[a] - guess[b]) > 0
    return Agreement(right, pairs)
