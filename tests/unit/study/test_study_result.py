"""What a finished search says: the winner and why, what came first, and what if nothing fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.core.errors import EnvironmentUnable, NothingFits
from autotune.core.job import Budget, Trainer
from autotune.core.memory import Peaks
from autotune.core.outcome import Outcome
from autotune.core.positions import Positions
from autotune.core.result import Ratio, Result, TrialRecord
from autotune.knobs.facts import Facts
from autotune.probe.prepared import ModelFacts, Prepared
from autotune.study.assemble import Run, assemble, peaks_line
from autotune.study.no_fit import require_fit
from autotune.study.strategy import cheapest, first_candidates
from tests.support.facts import CPU, GIB, GPU, MIB, candidate_of, facts_of, trial_of
from tests.support.results import gpu_result

OWN = candidate_of()
FAST = candidate_of(gradient_checkpointing="none")
BASELINE = trial_of(0, OWN, role="baseline", seconds=10.0)
OOM = Outcome.OOM_DEVICE
SURE = Ratio(reference=OWN.key, value=2.0, low=1.8, high=2.2, pairs=3)


def result_of(
    *trials: TrialRecord, facts: Facts | None = None, speedup: Ratio | None = None, **run: Any
) -> Result:
    made = gpu_result()
    facts = facts or facts_of(device=GPU)
    prepared = Prepared(
        environment=made.environment,
        device=facts.device,
        options={},
        defaults={},
        model=ModelFacts(
            model_dir="m",
            name="m",
            model_type="llama",
            positions=Positions(most=2048),
            vocabulary=99,
            moe=False,
            has_weights=False,
        ),
        profile=made.profile,
    )  # fmt: skip
    budget = Budget(total_bytes=10 * GIB, headroom_ratio=0.05, explicit=True)
    plain = Run(facts.job, facts, prepared, budget, {"name": "sft"}, (), "out", ("a notice",))
    return assemble(replace(plain, **run), trials, speedup=speedup, seconds=60.0, interrupted=False)


def test_the_fastest_that_is_surely_faster_wins_and_says_by_how_much() -> None:
    result = result_of(BASELINE, trial_of(1, FAST, seconds=5.0), speedup=SURE)
    assert FAST.key == result.best
    assert OWN.key == result.reference
    assert "2.00 times as fast as your own config" in result.chosen_because
    assert "95 % interval 1.80 to 2.20" in result.chosen_because


def test_a_gain_within_the_noise_keeps_the_users_config_and_says_so() -> None:
    unsure = SURE.model_copy(update={"value": 1.03, "low": 0.98, "high": 1.08})
    result = result_of(BASELINE, trial_of(1, FAST, seconds=9.7), speedup=unsure)
    assert OWN.key == result.best
    assert "does not beat your own config by more than the noise" in result.chosen_because
    assert result.pays_back_seconds is None


def test_the_search_pays_for_itself_after_the_time_it_saves() -> None:
    result = result_of(BASELINE, trial_of(1, FAST, seconds=5.0), speedup=SURE)
    assert result.pays_back_seconds == pytest.approx(120.0)


def test_a_baseline_that_does_not_fit_is_the_first_finding() -> None:
    out = trial_of(0, OWN, role="baseline", seconds=None, outcome=OOM, reason="the device is full")
    result = result_of(out, trial_of(1, FAST, seconds=5.0))
    assert result.notices[0].startswith("Your own config does not fit: the device is full")
    assert FAST.key == result.reference


def test_a_baseline_that_crashes_is_not_said_to_need_memory() -> None:
    out = trial_of(0, OWN, role="baseline", seconds=None, outcome=Outcome.INVALID, reason="refused")
    result = result_of(out, trial_of(1, FAST))
    assert result.notices[0].startswith("Your own config does not train: refused")


@pytest.mark.parametrize(("trainer", "said"), [(Trainer.SFT, True), (Trainer.DPO, False)])
def test_rows_flattened_under_a_length_are_said_where_trl_flattens(
    trainer: Trainer, said: bool
) -> None:
    facts = facts_of(device=GPU, trainer=trainer, options={"padding_free": True})
    result = result_of(BASELINE, facts=facts)
    assert said is any("TRL refuses padding_free" in notice for notice in result.notices)


def test_numbers_of_a_cpu_are_marked_as_such() -> None:
    result = result_of(BASELINE, facts=facts_of(device=CPU))
    assert any("not a recommendation for a GPU" in n for n in result.notices)
    assert not any("GPU" in n for n in result_of(BASELINE).notices)


@pytest.mark.parametrize(
    ("objective", "words"), [("memory", "smallest peak"), ("length", "longest sequences")]
)
def test_another_objective_says_what_it_chose_by(objective: str, words: str) -> None:
    facts = facts_of(device=GPU, objective=objective)
    small = trial_of(1, candidate_of(max_length=2048), seconds=20.0, peak_bytes=MIB)
    assert words in result_of(BASELINE, small, facts=facts).chosen_because


def nothing(*trials: TrialRecord) -> Result:
    result = result_of(*trials)
    assert result.best is None
    return result


def test_nothing_fits_names_the_nearest_miss_the_limit_and_what_to_do() -> None:
    # BC22
    own = trial_of(0, OWN, role="baseline", seconds=None, outcome=OOM, needed_bytes=int(9.5 * GIB))
    least = candidate_of(per_device_train_batch_size=1, max_length=256)
    tiny = trial_of(1, least, seconds=None, outcome=OOM, needed_bytes=int(9.5 * GIB))
    with pytest.raises(NothingFits) as caught:
        require_fit(nothing(own, tiny))
    said = str(caught.value)
    assert "even batch 1 at 256 tokens" in said, "the cheapest of equal bounds says most"
    assert "9.50 GiB" in said
    assert "10.00 GiB" in said
    assert "--memory" in said
    assert caught.value.exit_code == 3


def test_a_smaller_bound_is_the_nearer_miss() -> None:
    own = trial_of(0, OWN, role="baseline", seconds=None, outcome=OOM, needed_bytes=20 * GIB)
    near = candidate_of(per_device_train_batch_size=4)
    trials = (own, trial_of(1, near, seconds=None, outcome=OOM, needed_bytes=11 * GIB))
    with pytest.raises(NothingFits, match="even batch 4"):
        require_fit(nothing(*trials))


def test_what_could_not_be_measured_is_not_said_to_need_memory() -> None:
    # BC52: "nothing fits" is only said of memory.
    broken = trial_of(
        0, OWN, role="baseline", seconds=None, outcome=Outcome.CRASHED, reason="KeyError: 'x'"
    )
    with pytest.raises(EnvironmentUnable) as caught:
        require_fit(nothing(broken))
    assert "KeyError: 'x'" in str(caught.value)
    assert "logs/0000.txt" in str(caught.value)


def test_a_result_with_a_winner_is_a_fit() -> None:
    require_fit(result_of(BASELINE))


def test_peaks_are_never_one_unlabelled_number() -> None:
    # BC12
    line = peaks_line(
        Peaks(
            allocated_bytes=6 * GIB,
            reserved_bytes=7 * GIB,
            process_bytes=8 * GIB,
            device_used_bytes=11 * GIB,
        )
    )
    assert line == (
        "allocated 6.00 GiB, reserved 7.00 GiB, process 8.00 GiB, device used 11.00 GiB"
    )


def test_peaks_read_beside_each_other_have_one_unit() -> None:
    # BC12
    line = peaks_line(Peaks(allocated_bytes=512 * MIB, process_bytes=3 * GIB))
    assert line == "allocated 0.50 GiB, process 3.00 GiB"
    assert peaks_line(Peaks(allocated_bytes=512 * MIB)) == "allocated 512.0 MiB"


def test_a_model_spread_over_devices_was_measured_on_one_and_that_is_said() -> None:
    # BC11, second variant
    spread = facts_of(options={"model_init_kwargs": {"device_map": "auto"}})
    assert any("device_map auto" in n for n in result_of(BASELINE, facts=spread).notices)
    one = facts_of(options={"model_init_kwargs": {"device_map": {"": 0}}})
    assert not any("device_map" in n for n in result_of(BASELINE, facts=one).notices)
    replaced = result_of(BASELINE, facts=spread, job=spread.job).overrides
    assert {"model_init_kwargs.device_map": "auto"} == replaced


def measured_as(trial: TrialRecord, **changes: Any) -> TrialRecord:
    """Return a trial whose measurement has these numbers."""
    assert trial.report.measurement is not None
    measured = trial.report.measurement.model_copy(update=changes)
    return trial.model_copy(
        update={"report": trial.report.model_copy(update={"measurement": measured})}
    )


def test_retries_of_the_chosen_configs_allocator_are_said() -> None:
    full = measured_as(BASELINE, peaks=Peaks(reserved_bytes=9 * GIB, allocation_retries=3))
    assert any("try again, 3 times in probe 0" in n for n in result_of(full).notices)
    calm = measured_as(BASELINE, peaks=Peaks(reserved_bytes=9 * GIB, allocation_retries=0))
    assert not any("try again" in n for n in result_of(calm).notices)


def test_what_runs_once_before_training_is_said_apart() -> None:
    # BC08
    assert BASELINE.estimate is not None
    once = BASELINE.estimate.model_copy(update={"precompute_seconds": 90.0})
    result = result_of(BASELINE.model_copy(update={"estimate": once}))
    assert any("once before training, about 90 s" in n for n in result.notices), result.notices
    assert not any("precompute" in n for n in result_of(BASELINE).notices)


def test_a_verification_says_whose_weights_it_ran_with() -> None:
    look = trial_of(1, OWN, role="verification")
    for weights in ("real", "random"):
        seen = measured_as(look, weights=weights, update_peaks_bytes=(MIB,) * 20)
        assert f"with {weights} weights: 20 updates" in result_of(BASELINE, seen).verification


def test_a_saver_that_saved_nothing_is_a_finding() -> None:
    # BC43
    on = trial_of(1, candidate_of(activation_offloading=True), seconds=12.5)
    notices = result_of(BASELINE, on).notices
    assert any("activation_offloading saved no memory" in n and "1.25 times" in n for n in notices)


def test_the_cheapest_has_the_smallest_batch_then_length_then_every_saver() -> None:
    least = candidate_of(per_device_train_batch_size=1, max_length=128)
    others = [
        candidate_of(per_device_train_batch_size=1, max_length=256),
        candidate_of(per_device_train_batch_size=2, max_length=64),
        least.with_knobs(gradient_checkpointing="none"),
        least.with_knobs(gradient_checkpointing="selective"),
    ]
    assert least == cheapest([*others, least])
    assert cheapest([]) is None


def test_the_first_candidates_turn_one_lever_each_and_are_in_the_space() -> None:
    facts = facts_of()
    own = candidate_of(max_length=1024)
    packed = candidate_of(packing="bfd", max_length=1024, gradient_checkpointing="none")
    known = [own, own.with_knobs(gradient_checkpointing="none"), packed]
    found = first_candidates(known, own, facts)
    assert found == [known[1], packed]
