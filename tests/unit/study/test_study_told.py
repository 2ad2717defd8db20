"""What Optuna is told of an ending: what fits, what does not, and what is nothing to tell."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.job import Objective
from autotune.core.outcome import Outcome
from autotune.core.prediction import Prediction
from autotune.core.result import TrialRecord
from autotune.study.told import Told, told
from tests.support.facts import GIB, budget_of, candidate_of, trial_of

BUDGET = budget_of(10 * GIB)
FAST = trial_of(1, candidate_of(per_device_train_batch_size=2), seconds=4.0, peak_bytes=6 * GIB)
SLOW = trial_of(2, candidate_of(per_device_train_batch_size=1), seconds=9.0, peak_bytes=4 * GIB)


def too_large(**changes: Any) -> TrialRecord:
    return trial_of(
        3,
        candidate_of(max_length=512),
        seconds=None,
        outcome=Outcome.OOM_DEVICE,
        needed_bytes=15 * GIB,
    ).model_copy(update=changes)


def expecting(seconds: float, peak_bytes: int) -> Prediction:
    """Return what was expected of the candidate that is too large."""
    return Prediction(
        candidate=candidate_of(max_length=512), accumulation=1, peak_bytes=peak_bytes,
        low_bytes=peak_bytes, high_bytes=peak_bytes, traced_bytes=peak_bytes, split={},
        phase="backward", micro_steps=10, micro_step_seconds=seconds / 10, optimizer_seconds=0.0,
        parts_seconds={}, pass_seconds=seconds, score_seconds=seconds, useful_tokens_per_s=1.0,
        time_band_ratio=0.1, calibrated_by=3,
    )  # fmt: skip


def of(record: TrialRecord, *others: TrialRecord, objective: Objective = "throughput") -> Any:
    return told(record, (*others, record), BUDGET, objective)


def test_what_fits_is_told_with_its_own_score_and_how_far_below_the_limit_it_stays() -> None:
    assert Told(4.0, pytest.approx(-0.4)) == of(FAST)
    assert Told(6.0 * GIB, pytest.approx(-0.4)) == of(FAST, objective="memory")


def test_what_needs_too_much_is_told_with_the_best_objective_known_and_by_how_much() -> None:
    # Not the worst: that it does not fit is the constraint's business.
    assert Told(4.0, pytest.approx(0.5)) == of(too_large(), FAST, SLOW)
    assert Told(4.0 * GIB, pytest.approx(0.5)) == of(too_large(), FAST, SLOW, objective="memory")


def test_its_own_prediction_goes_before_what_others_reached() -> None:
    expected = too_large(prediction=expecting(2.5, 12 * GIB))
    assert Told(2.5, pytest.approx(0.5)) == of(expected, FAST, SLOW)
    needed = of(expected, FAST, objective="memory")
    assert 15 * GIB == needed.value, "it is known to need more than was expected"


def test_its_length_is_known_without_running() -> None:
    assert -512.0 == of(too_large(), FAST, objective="length").value


def test_while_nothing_is_known_nothing_is_made_up() -> None:
    assert 0.0 == of(too_large()).value


def test_an_unknown_need_is_still_a_violation() -> None:
    unknown = too_large(report=too_large().report.model_copy(update={"needed_bytes": None}))
    assert 0.0 < of(unknown, FAST).violation < 0.1


@pytest.mark.parametrize(
    "outcome",
    [Outcome.CRASHED, Outcome.TIMEOUT, Outcome.INVALID, Outcome.NON_FINITE, Outcome.POLLUTED],
)
def test_every_other_ending_is_nothing_to_tell(outcome: Outcome) -> None:
    assert of(trial_of(3, candidate_of(), seconds=None, outcome=outcome), FAST) is None


def test_the_sampler_is_not_led_to_what_does_not_fit() -> None:
    # Its value is as good as the best: only the constraint tells TPE to stay away.
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {"batch": optuna.distributions.CategoricalDistribution((1, 2, 3))}
    ends = {1: of(SLOW), 2: of(too_large(), FAST), 3: of(FAST)}
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=1, multivariate=True)
    study = optuna.create_study(sampler=sampler)
    for batch, end in [*ends.items()] * 3:
        study.add_trial(
            optuna.trial.create_trial(
                params={"batch": batch},
                distributions=space,
                value=end.value,
                constraints={"memory": end.violation},
            )
        )
    assert 3 == study.best_trial.params["batch"]
    drawn = [study.ask(space).params["batch"] for _ in range(12)]
    assert drawn.count(3) > drawn.count(2)
