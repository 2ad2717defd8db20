"""What only running shows to be invalid: no trial, said once, not run again in other clothes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable
from autotune.core.outcome import Outcome, Phase
from autotune.core.result import TrialRecord
from autotune.probe.protocol import ProbeSpec
from autotune.study.refusals import refusals, set_aside, skipped
from autotune.study.search import Search
from autotune.testing.fake_script import Happening, Raises
from tests.support.facts import GPU, candidate_of, facts_of, measurement_of, trial_of
from tests.support.search import search_of

FACTS = facts_of(device=GPU)
OWN = trial_of(0, candidate_of(), role="baseline")
WORDS = "selective checkpointing cannot be used with this model"


def refused(number: int, reason: str = WORDS, **knobs: Any) -> TrialRecord:
    return trial_of(
        number, candidate_of(**knobs), seconds=None, outcome=Outcome.INVALID, reason=reason
    )


def space(**knobs: list[Any]) -> list[Candidate]:
    """Return every combination of the choices."""
    found = [candidate_of()]
    for name, values in knobs.items():
        found = [one.with_knobs(**{name: value}) for one in found for value in values]
    return found


SPACE = space(
    gradient_checkpointing=["none", "full", "selective"],
    per_device_train_batch_size=[1, 2, 4, 8],
    pad_to_multiple_of=[None, 8],
)
ONE = refused(1, gradient_checkpointing="selective", per_device_train_batch_size=1)
TWO = refused(
    2, gradient_checkpointing="selective", per_device_train_batch_size=2, pad_to_multiple_of=8
)


def test_one_refusal_says_nothing_of_others() -> None:
    assert {} == set_aside(SPACE, [OWN, ONE])


def test_what_shares_all_that_two_refused_ones_share_is_set_aside() -> None:
    aside = set_aside(SPACE, [OWN, ONE, TWO])
    wanted = {c.key for c in SPACE if c.get("gradient_checkpointing") == "selective"}
    assert wanted - {ONE.candidate.key, TWO.candidate.key} == set(aside)


def known(number: int, *causes: str, **knobs: Any) -> TrialRecord:
    trial = refused(number, f"refused for {causes}", **knobs)
    ending = trial.report.ending.model_copy(update={"causes": causes})
    return trial.model_copy(update={"report": trial.report.model_copy(update={"ending": ending})})


#: knobs that are known to be the cause: (choices of the one refused, choices that are set aside)
SET_ASIDE: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "a variant of checkpointing (BC44)": (
        ("gradient_checkpointing",),
        {"gradient_checkpointing": "full"},
        {"gradient_checkpointing": "full"},
    ),
    "offloading (BC42)": (
        ("activation_offloading",),
        {"activation_offloading": True, "gradient_checkpointing": "none"},
        {"activation_offloading": True},
    ),
    "fp16 over half weights (BC19)": (
        ("dtype", "peft", "quantization"),
        {"dtype": "float16", "peft": "none"},
        {"dtype": "float16", "peft": "none"},
    ),
    "reentrant checkpointing of adapters (BC09)": (
        ("gradient_checkpointing", "peft"),
        {"gradient_checkpointing": "reentrant", "peft": "lora"},
        {"gradient_checkpointing": "reentrant", "peft": "lora"},
    ),
}
EVERY = space(
    gradient_checkpointing=["none", "full", "reentrant"],
    activation_offloading=[False, True],
    peft=["none", "lora"],
    dtype=["float32", "float16"],
    per_device_train_batch_size=[1, 2],
)


@pytest.mark.parametrize("case", SET_ASIDE)
def test_one_refusal_of_a_known_cause_sets_aside_what_shares_it_and_nothing_else(case: str) -> None:
    causes, choices, shared = SET_ASIDE[case]
    one = known(1, *causes, **{**EVERY[0].knobs, **choices})
    aside = set_aside(EVERY, [one])
    wanted = {c.key for c in EVERY if all(c.get(n) == v for n, v in shared.items())}
    assert wanted - {one.candidate.key} == set(aside)


def test_a_length_that_cuts_images_sets_every_shorter_one_aside() -> None:
    # BC35
    every = space(max_length=[128, 256, 300, 512], packing=["none", "bfd"])
    one = known(1, "max_length", max_length=256, packing="none")
    two = known(2, "max_length", max_length=300, packing="none")
    aside = {c.key for c in every if c.get("packing") == "none" and c.get("max_length") == 128}
    assert aside == set(set_aside(every, [one]))
    (line,) = skipped(every, [OWN, one, two])
    assert ("refused when run: max_length up to 300", 3) == (line.what, line.count)


def test_knobs_at_rest_are_no_cause() -> None:
    # A failure in a library's words, and no knob of ours that has to do with it.
    one = known(1, "use_liger_kernel", "attn_implementation")
    assert {} == set_aside(SPACE, [one])


def test_a_variant_that_cannot_be_used_costs_one_probe_and_the_others_are_tried(
    tmp_path: Path,
) -> None:
    # BC44
    words = "torch.utils.checkpoint: Recomputed values for the following tensors have different"

    def differs(order: int, spec: ProbeSpec) -> Happening | None:
        on = spec.options.get("gradient_checkpointing", True)
        kwargs = spec.options.get("gradient_checkpointing_kwargs") or {}
        raises = Raises("torch.utils.checkpoint.CheckpointError", words)
        return raises if on and not kwargs.get("selective") else None

    search = search_of(tmp_path, FACTS, script=differs, trials=9)
    search.run()
    bad = [t for t in search.trials if t.report.ending.outcome is Outcome.INVALID]
    assert ["baseline"] == [t.role for t in bad]
    ran = {t.candidate.get("gradient_checkpointing") for t in search.trials if t not in bad}
    assert {"none", "selective"} == ran
    (line,) = search.refused()
    assert "gradient checkpointing variant full (use_reentrant false) cannot" in line.reason


def test_two_reasons_are_two_causes() -> None:
    other = TWO.model_copy(update={"report": refused(2, "the disk has no room").report})
    assert {} == set_aside(SPACE, [OWN, ONE, other])


def test_a_reason_is_the_same_when_only_numbers_differ() -> None:
    numbered = [
        trial.model_copy(update={"report": refused(n, f"bad tensor at 0x7f{n}").report})
        for n, trial in enumerate((ONE, TWO))
    ]
    assert len(refusals([OWN, *numbered])) == 1


def test_nothing_is_set_aside_while_nothing_fits() -> None:
    # The cause may lie outside the candidates: a model that cannot be built at all.
    assert {} == set_aside(SPACE, [ONE, TWO])


@pytest.mark.parametrize("outcome", [Outcome.FITS, Outcome.OOM_DEVICE])
def test_nothing_is_set_aside_when_a_candidate_with_all_of_it_ran(outcome: Outcome) -> None:
    selective = candidate_of(gradient_checkpointing="selective")
    assert {} == set_aside(SPACE, [OWN, ONE, TWO, trial_of(3, selective, outcome=outcome)])


def leaking(number: int, **knobs: Any) -> TrialRecord:
    trial = refused(number, "documents in one row see each other", **knobs)
    mixed = measurement_of(documents_mix=True)
    return trial.model_copy(
        update={"report": trial.report.model_copy(update={"measurement": mixed})}
    )


def test_one_leak_is_that_strategys_and_attentions_alone() -> None:
    # DESIGN.md 5.7: once per strategy, attention backend and model.
    every = space(padding_free=[False, True], per_device_train_batch_size=[2, 4, 8])
    one = leaking(1, padding_free=True, per_device_train_batch_size=2)
    aside = set_aside(every, [OWN, one])
    wanted = {c.key for c in every if c.get("padding_free")} - {one.candidate.key}
    assert wanted == set(aside)


def test_every_strategy_that_leaks_is_told_apart_and_the_reason_is_said_once() -> None:
    every = [
        *space(padding_free=[False, True], per_device_train_batch_size=[2, 4]),
        *space(packing=["bfd", "bfd_split"], per_device_train_batch_size=[2, 4]),
    ]
    flat = leaking(1, padding_free=True, per_device_train_batch_size=2)
    packed = leaking(2, packing="bfd", per_device_train_batch_size=2)
    assert 2 == len(set_aside(every, [OWN, flat, packed])), "bfd_split was not tried"
    (line,) = skipped(every, [OWN, flat, packed])
    assert ("refused when run: packing bfd, padding_free true", 4) == (line.what, line.count)


def test_a_reason_is_said_once_with_its_choice_and_all_it_concerns() -> None:
    (line,) = skipped(SPACE, [OWN, ONE, TWO])
    assert (WORDS, 8) == (line.reason, line.count)
    assert "refused when run: gradient_checkpointing selective" == line.what


def test_the_users_own_refused_config_is_a_finding_and_not_skipped() -> None:
    own = refused(0).model_copy(update={"role": "baseline"})
    assert [] == skipped(SPACE, [own])


def refuses_selective(order: int, spec: ProbeSpec) -> Happening | None:
    kwargs = spec.options.get("gradient_checkpointing_kwargs") or {}
    return Raises("builtins.ValueError", WORDS, Phase.LOAD) if kwargs.get("selective") else None


def optuna_trials(search: Search) -> list[Any]:
    return list(search.store._study.get_trials(deepcopy=False))


def test_a_search_learns_what_is_refused_and_counts_it_as_no_trial(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, script=refuses_selective, trials=9)
    search.run()
    bad = [t for t in search.trials if t.report.ending.outcome is Outcome.INVALID]
    assert 2 == len(bad), "the third and all others are known to be alike"
    counted = [t for t in search.trials if t.role in ("baseline", "search") and t not in bad]
    assert 9 == len(counted)
    ends = {t.user_attrs["outcome"]: t for t in optuna_trials(search)}
    assert "FAIL" == ends["invalid"].state.name
    assert ends["invalid"].values is None
    (line,) = search.refused()
    siblings = [
        c for c in search.space.candidates if c.get("gradient_checkpointing") == "selective"
    ]
    assert (WORDS, len(siblings)) == (line.reason, line.count)


def test_a_resumed_search_knows_what_was_refused(tmp_path: Path) -> None:
    first = search_of(tmp_path, FACTS, script=refuses_selective, trials=9)
    first.run()
    first.store.close()
    again = search_of(tmp_path, FACTS, script=refuses_selective, trials=9)
    again.run()
    assert [t.number for t in first.trials] == [t.number for t in again.trials]
    assert first.refused() == again.refused()


def test_a_space_full_of_refusals_comes_to_an_end(tmp_path: Path) -> None:
    def every_one_differently(order: int, spec: ProbeSpec) -> Happening | None:
        words = f"refused {'abcdefghijklmnop'[order]}"
        return Raises("builtins.ValueError", words, Phase.LOAD) if order else None

    search = search_of(tmp_path, FACTS, script=every_one_differently, trials=4)
    search.run()
    assert 8 == len([t for t in search.trials if t.role in ("baseline", "search")])


def test_one_refusal_of_everything_stops_the_search_and_is_shown(tmp_path: Path) -> None:
    always = Raises("builtins.ValueError", "this model cannot be built", Phase.LOAD)
    search = search_of(tmp_path, FACTS, script=lambda _, __: always, trials=9)
    with pytest.raises(EnvironmentUnable, match="cannot be built"):
        search.run()
