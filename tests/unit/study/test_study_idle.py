"""What a probe shows to have no effect is run once, is not emitted, and is said (BC41)."""

from __future__ import annotations

from pathlib import Path

from autotune.core.candidate import Candidate
from autotune.knobs.readback import used_instead
from autotune.study.findings import findings
from autotune.study.idle import same_in_effect
from autotune.testing.fake_machine import FakeMachine
from tests.support.facts import GPU, candidate_of, facts_of, measurement_of, trial_of
from tests.support.search import search_of, space_of

FACTS = facts_of(device=GPU)
SPACE = space_of(
    per_device_train_batch_size=[1, 2, 4, 8],
    activation_offloading=[False, True],
    gradient_checkpointing=["none", "full"],
)
#: A machine whose TRL accepts the option and does nothing.
DEAF = FakeMachine(instead={"activation_offloading": False})


def test_two_candidates_that_are_one_in_effect_are_not_both_run(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, space=SPACE, machine=DEAF, trials=30)
    search.run()
    asked = [t for t in search.trials if t.candidate.get("activation_offloading")]
    assert 1 == len(asked), "the first one shows it"
    assert 9 == len({t.candidate.key for t in search.trials}), "all eight without it, and that one"
    assert "activation_offloading true had no effect: false was used" == asked[0].note


def test_what_is_emitted_is_what_was_in_effect(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, space=SPACE, machine=DEAF, trials=30)
    search.run()
    (asked,) = [t for t in search.trials if t.candidate.get("activation_offloading")]
    assert not asked.options.get("activation_offloading", False)


def test_the_report_lists_options_without_effect(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, space=SPACE, machine=DEAF, trials=30)
    search.run()
    said = [s for s in findings(search.trials, None, FACTS) if "had no effect" in s]
    assert 1 == len(said)
    assert "activation_offloading true had no effect: false was used (read back" in said[0]


def test_a_choice_that_stands_for_no_other_candidate_is_still_run() -> None:
    only = [candidate_of(attn_implementation="flex_attention")]
    shown = trial_of(0, candidate_of(attn_implementation="flex_attention", max_length=64))
    measured = measurement_of(effective={"attn_implementation": "eager"})
    report = shown.report.model_copy(update={"measurement": measured})
    trials = [shown.model_copy(update={"report": report})]
    assert set() == same_in_effect(only, trials)
    both = [*only, candidate_of(attn_implementation="eager")]
    assert {only[0].key} == same_in_effect(both, trials)


def test_values_that_were_not_read_back_say_nothing() -> None:
    asked = Candidate(knobs={"padding_free": True, "dtype": "bfloat16", "optim": "adamw_torch"})
    assert {} == used_instead(asked, {})
    # what is stored in 4 bit is no choice of dtype
    assert {} == used_instead(asked, {"dtype": "nf4+bfloat16", "optim": "adamw_torch"})
    assert {"dtype": "float32"} == used_instead(asked, {"dtype": "float32+bfloat16"})
