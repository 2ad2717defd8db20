"""One config measured on a made-up machine, in turns with the reference form of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable, NothingFits
from autotune.core.outcome import Phase
from autotune.core.result import Result
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical
from autotune.study.session import Session
from autotune.study.single import Single, alone, reference_form, require_runs
from autotune.testing.fake_script import Pollutes, Raises, Script, always, at, out_of_memory
from tests.support.facts import GIB, GPU, facts_of
from tests.support.results import gpu_result
from tests.support.search import search_of

FACTS = facts_of(device=GPU)
OWN = canonical(user_candidate(FACTS), FACTS)


def single(folder: Path, repeats: int, script: Script | None = None) -> Single:
    """Return the measurement of the user's own config, ready to run."""
    search = search_of(folder, FACTS, script=script)
    known = {f.name: getattr(search, f.name) for f in dataclasses.fields(Session) if f.init}
    return Single(**known, repeats=repeats)


def document(run: Single) -> Result:
    whole = gpu_result().model_copy(update={"trials": tuple(run.trials)})
    return alone(whole, run.speedup)


def test_the_config_and_its_reference_are_measured_in_turns(tmp_path: Path) -> None:
    run = single(tmp_path, 3)
    run.run()
    other = reference_form(OWN, FACTS)
    assert other is not None
    assert [OWN.key, other.key] * 3 == [t.candidate.key for t in run.trials]
    assert ["baseline", *["confirmation"] * 5] == [t.role for t in run.trials]
    made = document(run)
    assert (OWN.key, other.key) == (made.best, made.reference)
    assert made.speedup is not None
    assert (3, other.key) == (made.speedup.pairs, made.speedup.reference)
    require_runs(made)


def test_one_measurement_needs_no_reference(tmp_path: Path) -> None:
    run = single(tmp_path, 1)
    run.run()
    assert [OWN.key] == [t.candidate.key for t in run.trials]
    assert document(run).speedup is None


def test_a_config_that_fails_in_a_later_turn_does_not_fit(tmp_path: Path) -> None:
    run = single(tmp_path, 3, at({2: out_of_memory("cuda:0", Phase.STEADY)}))
    run.run()
    assert 3 == len(run.trials)
    made = document(run)
    assert made.best is None
    assert made.chosen_because.startswith("the config does not run")
    with pytest.raises(NothingFits, match="the config does not fit"):
        require_runs(made)


def test_a_config_that_crashes_could_not_be_measured(tmp_path: Path) -> None:
    run = single(tmp_path, 1, always(Raises("builtins.ValueError", "no such kernel")))
    run.run()
    with pytest.raises(EnvironmentUnable, match="could not be measured"):
        require_runs(document(run))


def test_a_disturbed_measurement_is_taken_once_more(tmp_path: Path) -> None:
    run = single(tmp_path, 1, at({0: Pollutes(15 * GIB)}))
    run.run()
    assert [OWN.key] * 2 == [t.candidate.key for t in run.trials]
    assert OWN.key == document(run).best


def test_a_reference_that_fails_leaves_the_config_without_a_ratio(tmp_path: Path) -> None:
    run = single(tmp_path, 2, at({1: out_of_memory("cuda:0", Phase.STEADY)}))
    run.run()
    made = document(run)
    assert (OWN.key, None) == (made.best, made.speedup)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"packing": True, "max_length": 512},
        {"padding_free": True},
        {"gradient_checkpointing": False, "per_device_train_batch_size": 2},
        {"pad_to_multiple_of": 64},
        {"attn_implementation": "eager", "dataloader_num_workers": 4},
        {"train_sampling_strategy": "group_by_length", "torch_empty_cache_steps": 10},
    ],
)
def test_no_knob_of_the_config_reaches_its_reference_but_the_length(
    options: dict[str, Any],
) -> None:
    facts = facts_of(device=GPU, options=options)
    form = reference_form(canonical(user_candidate(facts), facts), facts)
    assert form is not None
    plain = facts_of(device=GPU)
    other = reference_form(canonical(user_candidate(plain), plain), plain)
    assert other is not None
    length = form.get("max_length")
    assert other.with_knobs(max_length=length) == form


def test_a_config_that_is_the_reference_form_has_none() -> None:
    facts = facts_of(device=GPU, options={"per_device_train_batch_size": 1})
    own: Candidate = canonical(user_candidate(facts), facts)
    assert reference_form(own, facts) is None
