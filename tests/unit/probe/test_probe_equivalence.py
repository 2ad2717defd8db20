"""When two updates count as the same (DESIGN.md 5.7)."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.equivalence import Compared, Update
from autotune.core.outcome import Outcome
from autotune.probe.equivalence import judge


def update(**changes: Any) -> Update:
    """Return a plausible update."""
    plain = {"micro_steps": 2, "label_tokens": 100, "loss": 7.5, "grad_norm": 2.0}
    return Update(**{"precision": "fp32", **plain, **changes})


def judged(reference: Update, candidate: Update) -> tuple[Outcome, str]:
    ending = judge(Compared(reference=reference, candidate=candidate, weights="random"))
    return ending.outcome, ending.reason


def test_equal_updates_are_equivalent_however_they_are_split() -> None:
    assert (Outcome.FITS, "") == judged(update(), update(micro_steps=8))


@pytest.mark.parametrize(
    ("precision", "loss", "grad_norm"), [("fp32", 1e-5, 1e-4), ("bf16", 5e-4, 1e-2)]
)
def test_the_limits_are_those_of_the_precision(
    precision: str, loss: float, grad_norm: float
) -> None:
    mine = update(precision=precision)
    within = {"loss": 7.5 * (1 + 0.9 * loss), "grad_norm": 2.0 * (1 - 0.9 * grad_norm)}
    assert Outcome.FITS is judged(mine, update(precision=precision, **within))[0]
    for name, value in (("loss", 7.5 * (1 + 1.1 * loss)), ("grad_norm", 2 * (1 - 1.1 * grad_norm))):
        assert Outcome.INVALID is judged(mine, update(precision=precision, **{name: value}))[0]


def test_the_reason_names_what_differs_and_both_numbers() -> None:
    _, reason = judged(update(), update(label_tokens=99))
    assert "label tokens 99, the reference's has 100" in reason
    _, reason = judged(update(), update(loss=7.6))
    assert "loss 7.6, the reference's has 7.5" in reason
    _, reason = judged(update(), update(grad_norm=4.0))
    assert "gradient norm 4, the reference's has 2" in reason


@pytest.mark.parametrize("number", ["loss", "grad_norm"])
def test_a_candidate_that_is_not_finite_is_not_equivalent(number: str) -> None:
    outcome, reason = judged(update(), update(**{number: None}))
    assert Outcome.INVALID is outcome
    assert "not finite" in reason


@pytest.mark.parametrize("number", ["loss", "grad_norm"])
def test_a_reference_that_is_not_finite_says_nothing_of_the_candidate(number: str) -> None:
    for candidate in (update(), update(**{number: None})):
        outcome, reason = judged(update(**{number: None}), candidate)
        assert Outcome.NON_FINITE is outcome
        assert "the reference's own update" in reason


def test_an_update_that_trains_nothing_is_never_equivalent() -> None:
    nothing = update(label_tokens=0, loss=0.0, grad_norm=0.0)
    assert Outcome.INVALID is judged(nothing, nothing)[0]
