"""What giving cached memory back every so many updates costs is measured, or said not to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.candidate import Candidate
from autotune.core.result import Estimate
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical, settings
from autotune.study.emptying import unknown_words
from autotune.study.objective import estimate
from autotune.testing import FakeMachine
from tests.support.facts import GPU, facts_of, measurement_of, step_of
from tests.support.search import search_of, space_of

FACTS = facts_of(device=GPU)


def own(every: int | None) -> Candidate:
    facts = facts_of(device=GPU, options={"torch_empty_cache_steps": every} if every else {})
    return canonical(user_candidate(facts), facts)


def estimated(every: int | None, *emptied: float, calm: int = 6) -> Estimate:
    """Return the estimate of steps of 0.1 s, and of some in which the cache was emptied."""
    timed = [step_of(seconds=0.1) for _ in range(calm)]
    timed += [step_of(seconds=seconds, emptied=True) for seconds in emptied]
    measured = measurement_of(timed_steps=tuple(timed))
    candidate = own(every)
    found = estimate(candidate, settings(candidate, FACTS), measured, FACTS)
    assert found is not None
    return found


def test_the_cost_of_an_emptied_step_comes_as_often_as_the_users_run_empties() -> None:
    plain = estimated(None)
    rare = estimated(10, 0.3, 0.3, 0.3)
    micro_steps = plain.updates_per_pass  # no accumulation
    assert pytest.approx(0.2 * micro_steps / 10) == rare.emptying_seconds
    assert pytest.approx(plain.pass_seconds + 0.2 * micro_steps / 10) == rare.pass_seconds
    assert rare.emptying_seconds == pytest.approx(5 * (estimated(50, 0.3).emptying_seconds or 0))


def test_where_every_update_empties_the_steps_themselves_show_it() -> None:
    always = estimated(1, *(0.3,) * 8, calm=0)
    assert 0.0 == always.emptying_seconds
    assert always.pass_seconds > 2 * estimated(None).pass_seconds


def test_emptying_that_costs_nothing_never_makes_a_pass_shorter() -> None:
    assert 0.0 == estimated(10, 0.05, 0.05).emptying_seconds


def test_a_cost_that_was_not_seen_is_said_to_be_unknown() -> None:
    unseen = estimated(50)
    assert unseen.emptying_seconds is None
    assert "was not measured and is not in the time" in unknown_words(unseen)
    assert "" == unknown_words(estimated(50, 0.3)) == unknown_words(None)


def test_on_a_machine_where_emptying_is_costly_a_rarer_one_is_faster(tmp_path: Path) -> None:
    space = space_of(torch_empty_cache_steps=[None, 1, 10, 50])
    search = search_of(tmp_path, FACTS, space=space, machine=FakeMachine(emptying_s=0.5), trials=9)
    search.run()
    passes = {
        t.candidate.get("torch_empty_cache_steps"): t.estimate.pass_seconds
        for t in search.trials
        if t.estimate and t.role in ("baseline", "search")
    }
    assert passes[None] < passes[50] < passes[10] < passes[1]
