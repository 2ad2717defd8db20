"""When a probe is ended, what is said of it then, and what the search learns from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable
from autotune.core.outcome import Outcome, Phase
from autotune.core.prediction import Prediction
from autotune.core.result import TrialRecord
from autotune.probe.protocol import ProbeSpec
from autotune.study.findings import findings
from autotune.study.limits import (
    Deadline,
    Limits,
    deadline_of,
    explained,
    least_score,
    slower_than_late,
)
from autotune.study.search import Search
from autotune.study.told import Told, told
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_script import Hangs, Happening
from tests.support.facts import (
    GIB,
    GPU,
    budget_of,
    candidate_of,
    ending_of,
    facts_of,
    trial_of,
)
from tests.support.results import prediction_of
from tests.support.search import search_of

FACTS = facts_of(device=GPU)
OWN = candidate_of(per_device_train_batch_size=8)
OTHER = candidate_of(per_device_train_batch_size=1)
FREE = Limits(trials=8, search_s=None)


def ran(number: int, candidate: Candidate, *, load: float, steps: float, score: float) -> Any:
    """Return a probe that fitted: seconds of loading, of its steps, and of an epoch."""
    made = trial_of(number, candidate, seconds=score, role="search")
    measured = made.report.measurement
    assert measured is not None
    report = made.report.model_copy(
        update={
            "wall_seconds": load + steps,
            "measurement": measured.model_copy(update={"steps_seconds": steps}),
        }
    )
    return made.model_copy(update={"report": report})


def late(
    number: int, candidate: Candidate, wall: float, phase: Phase = Phase.STEADY, **changes: Any
) -> TrialRecord:
    """Return a probe that was ended after ``wall`` seconds."""
    made = trial_of(number, candidate, seconds=None)
    ending = ending_of(Outcome.TIMEOUT, "it did not end within X", phase)
    report = made.report.model_copy(update={"ending": ending, "wall_seconds": wall})
    return made.model_copy(update={"report": report, **changes})


def expecting(candidate: Candidate, seconds: float) -> Prediction:
    """Return a prediction of an epoch that takes so long, in a thousand micro-steps."""
    fitting = trial_of(0, candidate, seconds=seconds)
    change = {"micro_step_seconds": seconds / 1000, "optimizer_seconds": 0.0}
    return prediction_of(fitting).model_copy(update=change)


def deadline(
    candidate: Candidate,
    role: str,
    *trials: TrialRecord,
    limits: Limits = FREE,
    predicted: Mapping[str, Prediction] | None = None,
    left_s: float = math.inf,
) -> Deadline:
    known = predicted or {}
    return deadline_of(candidate, role, limits, trials, lambda c: known.get(c.key), left_s)


def test_no_default_ends_the_users_own_config() -> None:
    assert Deadline(math.inf, "expected") == deadline(OWN, "baseline")
    before = late(0, OWN, 120.0)
    assert Deadline(math.inf, "expected") == deadline(OWN, "baseline", before)


def test_while_nothing_ran_no_default_ends_anything() -> None:
    failed = trial_of(0, OWN, seconds=None, outcome=Outcome.OOM_DEVICE, role="baseline")
    assert math.inf == deadline(OTHER, "search", failed).seconds


def test_a_probe_has_ten_times_what_the_slowest_so_far_took() -> None:
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    assert Deadline(3600.0, "expected") == deadline(OTHER, "search", first)


def test_a_candidate_that_is_predicted_slower_has_more_and_a_faster_one_no_less() -> None:
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    known = {OWN.key: expecting(OWN, 1000.0), OTHER.key: expecting(OTHER, 3000.0)}
    assert 10 * (60 + 3 * 300) == deadline(OTHER, "search", first, predicted=known).seconds
    known[OTHER.key] = expecting(OTHER, 100.0)
    assert 10 * (60 + 300) == deadline(OTHER, "search", first, predicted=known).seconds


def test_a_prediction_alone_makes_a_deadline_of_what_a_probe_runs() -> None:
    # 64 rows of one, 16 micro-steps more, each up to three times the mean: 80 x 3 x 2 s.
    known = {OTHER.key: expecting(OTHER, 2000.0)}
    assert 4800.0 == pytest.approx(deadline(OTHER, "search", predicted=known).seconds)


def test_a_short_probe_has_two_minutes_and_more_on_a_busy_machine() -> None:
    first = ran(0, OWN, load=1.0, steps=2.0, score=10.0)
    assert 120.0 == deadline(OTHER, "search", first).seconds
    busy = Limits(trials=8, search_s=None, slowdown=4.0)
    assert 480.0 == deadline(OTHER, "search", first, limits=busy).seconds


@pytest.mark.parametrize(
    ("role", "seconds"),
    [("baseline", 30.0), ("search", 30.0), ("confirmation", 30.0), ("verification", 150.0)],
)
def test_what_the_user_says_is_kept_exactly(role: str, seconds: float) -> None:
    said = Limits(trials=8, search_s=600.0, probe_s=30.0, slowdown=4.0)
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    found = deadline(OWN, role, first, limits=said, left_s=5.0)
    assert Deadline(seconds, "--probe-timeout") == found


def test_a_timeout_of_the_search_ends_what_would_otherwise_take_what_it_takes() -> None:
    bounded = Limits(trials=8, search_s=600.0)
    found = deadline(OWN, "baseline", limits=bounded, left_s=900.0)
    assert Deadline(900.0, "--timeout") == found
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    assert 500.0 == deadline(OTHER, "search", first, limits=bounded, left_s=500.0).seconds
    check = deadline(OWN, "confirmation", first, limits=bounded, left_s=5.0)
    assert Deadline(3600.0, "expected") == check, "a check that has begun is finished"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Deadline(120.0, "--probe-timeout"), "; --probe-timeout 10m gives it more time"),
        (Deadline(30.0, "--probe-timeout"), "; --probe-timeout 3m gives it more time"),
        (Deadline(900.0, "--timeout"), "--timeout was over; --timeout 2h gives more time"),
        (Deadline(3600.0, "expected"), "10 times what was expected; --probe-timeout 5h"),
    ],
)
def test_the_remedy_is_named(made: Deadline, words: str) -> None:
    ending = ending_of(Outcome.TIMEOUT, "it did not end within X after 3 micro-steps")
    assert words in explained(ending, made).reason
    fits = ending_of(Outcome.FITS)
    assert fits == explained(fits, made)


def test_what_did_not_end_takes_at_least_as_long_as_its_steps_did() -> None:
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    slow = late(1, OTHER, wall=3060.0)
    assert 10_000.0 == least_score(slow, (first, slow)), "3000 s of steps against 300 s"
    surer = late(1, OTHER, 3060.0, prediction=expecting(OTHER, 20_000.0))
    assert 20_000.0 == least_score(surer, (first, surer))
    alone = late(1, OTHER, 3060.0, prediction=expecting(OTHER, 20_000.0))
    assert 20_000.0 == least_score(alone, (alone,))


def test_what_was_still_loading_tells_nothing_of_its_steps() -> None:
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    loading = late(1, OTHER, 3060.0, Phase.LOAD)
    assert None is least_score(loading, (first, loading))
    assert None is least_score(first, (first,))


def test_optuna_is_told_the_bound_where_time_is_what_counts() -> None:
    first = ran(0, OWN, load=60.0, steps=300.0, score=1000.0)
    slow = late(1, OTHER, 3060.0)
    trials, budget = (first, slow), budget_of(10 * GIB)
    assert Told(10_000.0, 0.0) == told(slow, trials, budget, "throughput")
    assert None is told(slow, trials, budget, "memory")


def test_what_is_predicted_slower_than_what_did_not_end_is_not_tried() -> None:
    some = [candidate_of(max_length=n) for n in (64, 128, 256, 512)]
    known = [expecting(c, 100.0 * n) for n, c in enumerate(some, 1)]
    slow = late(1, some[1], 300.0)
    assert [known[2], known[3]] == slower_than_late(known, (slow,))
    assert [] == slower_than_late(known, (late(1, some[1], 300.0, Phase.LOAD),))
    again = ran(2, some[1], load=1.0, steps=400.0, score=200.0)
    assert [] == slower_than_late(known, (slow, again)), "it ended once it had more time"


def hanging(key_batch: int) -> Any:
    def script(order: int, spec: ProbeSpec) -> Happening | None:
        mine = spec.options.get("per_device_train_batch_size", 8) == key_batch
        return Hangs() if mine else None

    return script


def searched(folder: Path, probe_s: float | None, **changes: Any) -> Search:
    search = search_of(folder, FACTS, trials=4, storage=None, **changes)
    search.limits = Limits(trials=4, search_s=None, probe_s=probe_s)
    with suppress(EnvironmentUnable):  # all of the first probes ended the same way
        search.run()
    search.store.close()
    return search


def test_a_baseline_that_was_ended_is_said_to_be_not_measured_and_measured_on_resume(
    tmp_path: Path,
) -> None:
    slow = FakeMachine(load_s=60.0)
    first = searched(tmp_path, 30.0, machine=slow)
    assert [Outcome.TIMEOUT] * 3 == [t.report.ending.outcome for t in first.trials][:3]
    said = findings(first.trials, None, FACTS)[0]
    assert said.startswith("Your own config was not measured: it did not end within 30 s")
    assert "--probe-timeout 3m" in said
    again = searched(tmp_path, None, machine=slow, started=len(first.trials))
    mine = [t for t in again.trials if t.role == "baseline"]
    assert [Outcome.TIMEOUT, Outcome.FITS] == [t.report.ending.outcome for t in mine]


def test_a_config_that_hangs_is_a_crash_and_no_slow_one(tmp_path: Path) -> None:
    search = searched(tmp_path, None, script=hanging(8))
    own = search.trials[0].report.ending
    assert Outcome.CRASHED is own.outcome
    assert own.reason.startswith("it hung: no processor time was used for 10 min")
    assert any(t.estimate is not None for t in search.trials)
