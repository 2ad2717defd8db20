"""Decides whether a candidate trains what its reference trains (DESIGN.md 5.7); pure."""

from __future__ import annotations

import math

from autotune.core.equivalence import Compared, Precision, Update
from autotune.core.outcome import Ending, Outcome, Phase

#: Largest relative difference of the loss and of the gradient norm, by precision. Sums taken in
#: another order differ by rounding: 24 bits of mantissa in fp32, 11 in tf32 and fp16, 8 in bf16.
#: fp16 is held to bf16's limits, since its smallest gradients are rounded away as well; tf32 has
#: the range of fp32 and is held closer.
TOLERANCES: dict[Precision, tuple[float, float]] = {
    "fp32": (1e-5, 1e-4),
    "tf32": (1e-4, 2e-3),
    "bf16": (5e-4, 1e-2),
    "fp16": (5e-4, 1e-2),
}


def judge(compared: Compared) -> Ending:
    """Return how a comparison ended: ``fits`` when the two train the same, else ``invalid``.

    Args:
        compared: one update of each on the same rows.
    """
    reference, candidate = compared.reference, compared.candidate
    if reference.loss is None or reference.grad_norm is None:
        return _ending(
            Outcome.NON_FINITE,
            "the reference's own update has a loss or a gradient norm that is not finite with "
            f"{compared.weights} weights, so nothing can be compared with it",
        )
    loss, grad_norm = TOLERANCES[_lowest(reference, candidate)]
    for what, mine, theirs, limit in (
        ("label tokens", candidate.label_tokens, reference.label_tokens, 0.0),
        ("loss", candidate.loss, reference.loss, loss),
        ("gradient norm", candidate.grad_norm, reference.grad_norm, grad_norm),
    ):
        if not difference_ratio(mine, theirs) <= limit:
            return _ending(
                Outcome.INVALID,
                f"not equivalent: one update on the same rows has {what} {_shown(mine)}, the "
                f"reference's has {theirs:.7g} (at most {limit:g} apart was expected)",
            )
    if reference.label_tokens == 0 or reference.grad_norm == 0.0:
        return _ending(Outcome.INVALID, "not equivalent: the update trains nothing")
    return _ending(Outcome.FITS, "")


def difference_ratio(mine: float | None, theirs: float | None) -> float:
    """Return the relative difference of two numbers; infinite when one of them is not finite."""
    if mine is None or theirs is None:
        return math.inf
    return abs(mine - theirs) / abs(theirs) if theirs else float(mine != theirs)


def _shown(number: float | None) -> str:
    return "not finite" if number is None else f"{number:.7g}"


def _lowest(reference: Update, candidate: Update) -> Precision:
    """Return the precision that allows the larger difference."""
    return max(reference.precision, candidate.precision, key=lambda p: TOLERANCES[p])


def _ending(outcome: Outcome, reason: str) -> Ending:
    return Ending(outcome=outcome, phase=Phase.STEADY, reason=reason)
