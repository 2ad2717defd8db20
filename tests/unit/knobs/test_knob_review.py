"""Re-derived steps, change classes and pinned options keep what the user meant."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.intake.job import build_job
from autotune.intake.request import Request
from autotune.knobs.catalog import user_candidate
from autotune.knobs.changes import change_class
from autotune.knobs.translate import canonical, settings
from tests.support.facts import facts_of


def test_saving_stays_a_multiple_of_evaluating_where_the_best_model_is_loaded() -> None:
    facts = facts_of(
        options={
            "eval_steps": 50,
            "save_steps": 100,
            "load_best_model_at_end": True,
            "per_device_train_batch_size": 8,
        }
    )
    own = canonical(user_candidate(facts), facts)
    packed = own.with_knobs(packing="bfd", max_length=256, per_device_train_batch_size=1)
    options = settings(canonical(packed, facts), facts).options
    evaluated = options.get("eval_steps", 50)
    assert 0 == options.get("save_steps", 100) % evaluated


@pytest.mark.parametrize("logging", [{}, {"logging_steps": 7}])
def test_saving_stays_a_multiple_of_evaluating_that_follows_logging(
    logging: dict[str, Any],
) -> None:
    own = {"eval_strategy": "steps", "save_steps": 70, "load_best_model_at_end": True}
    facts = facts_of(
        options={**own, **logging, "per_device_train_batch_size": 8}, effective_batch_sequences=24
    )
    facts = dataclasses.replace(facts, defaults={**facts.defaults, "logging_steps": 10})
    made = settings(canonical(user_candidate(facts), facts), facts).options
    every = made.get("logging_steps", 10)
    assert 0 == made["save_steps"] % every
    assert made["save_steps"] == pytest.approx(70 / 3, abs=every)


def test_taking_packing_away_is_a_change_of_data() -> None:
    facts = facts_of(options={"packing": True, "packing_strategy": "bfd", "max_length": 256})
    own = canonical(user_candidate(facts), facts)
    assert "neutral" == change_class(own, facts)
    assert "data" == change_class(canonical(own.with_knobs(packing="none"), facts), facts)


@pytest.mark.parametrize("name", ["model_name_or_path", "dataset_name", "datasets"])
def test_a_set_that_would_be_ignored_is_refused_with_the_option_that_works(name: str) -> None:
    with pytest.raises(BadInput, match=f"--set {name} would be ignored"):
        build_job(Request(set_options={name: "x"}))
