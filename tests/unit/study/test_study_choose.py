"""Which candidate wins, against what it is held, and what a ratio is worth."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.study.choose import choice, fitting, in_vain, paired_ratio, ranking, reference
from autotune.study.unmoved import unmoved
from tests.support.facts import MIB, candidate_of, estimate_of, measurement_of, trial_of

OWN = candidate_of()
FASTER = candidate_of(gradient_checkpointing="none")
SMALLER = candidate_of(per_device_train_batch_size=1)
LONGER = candidate_of(max_length=2048)

BASELINE = trial_of(0, OWN, role="baseline", seconds=10.0)
OOM = trial_of(0, OWN, role="baseline", seconds=None, outcome=Outcome.OOM_DEVICE)


def test_the_users_config_is_the_reference_when_it_fits() -> None:
    assert BASELINE == reference([BASELINE, trial_of(1, FASTER, seconds=1.0)])


def test_else_it_is_the_fitting_candidate_with_the_fewest_neutral_changes() -> None:
    one = trial_of(3, SMALLER, seconds=20.0)
    two = trial_of(2, SMALLER.with_knobs(gradient_checkpointing="none"), seconds=5.0)
    data = trial_of(1, candidate_of(max_length=512), seconds=1.0, changes="data")
    assert one == reference([OOM, data, two, one])
    assert data == reference([OOM, data])


def test_without_anything_that_fits_there_is_no_reference() -> None:
    assert reference([OOM]) is None
    assert reference([]) is None


def test_a_baseline_that_crashed_is_no_reference() -> None:
    crashed = trial_of(0, OWN, role="baseline", seconds=None, outcome=Outcome.CRASHED)
    fits = trial_of(1, SMALLER)
    assert fits == reference([crashed, fits])


def test_a_candidate_that_leaves_adapters_untrained_which_others_train_is_never_chosen() -> None:
    # BC09: the run works, and some adapter layers stay exactly zero.
    def adapted(number: int, batch: int, seconds: float, *idle: str) -> TrialRecord:
        trial = trial_of(number, candidate_of(peft="lora", per_device_train_batch_size=batch))
        measured = measurement_of(trained_modules=8, unreached_modules=idle)
        report = trial.report.model_copy(update={"measurement": measured})
        update = {"report": report, "estimate": estimate_of(seconds)}
        return trial.model_copy(update=update)

    shared = "layers.7.k_proj.lora"  # of no use to the model
    quiet = adapted(1, 8, 5.0, shared, "layers.0.q_proj.lora")
    whole = adapted(2, 4, 9.0, shared)
    assert [whole] == fitting([quiet, whole])
    (sentence,) = unmoved([quiet, whole]).values()
    assert "Probe 1 trains no adapter of 1 layers, such as layers.0.q_proj" in sentence
    assert [quiet] == fitting([quiet]), "nothing shows that it could be trained"


def test_a_baseline_that_was_disturbed_counts_by_its_second_probe() -> None:
    disturbed = trial_of(0, OWN, role="baseline", seconds=None, outcome=Outcome.POLLUTED)
    second = trial_of(1, OWN, role="baseline", seconds=9.0)
    assert second == reference([disturbed, second, trial_of(2, FASTER, seconds=1.0)])


def test_throughput_ranks_by_time_and_breaks_ties_by_memory() -> None:
    slow = trial_of(1, SMALLER, seconds=20.0, peak_bytes=MIB)
    lean = trial_of(2, FASTER, seconds=10.0, peak_bytes=50 * MIB)
    ranked = ranking([BASELINE, slow, lean], "throughput")
    assert [lean, BASELINE, slow] == ranked


def test_memory_ranks_by_peak_and_length_by_length() -> None:
    small = trial_of(1, SMALLER, seconds=50.0, peak_bytes=MIB)
    long = trial_of(2, LONGER, seconds=99.0)
    assert small == ranking([BASELINE, small, long], "memory")[0]
    assert long == ranking([BASELINE, small, long], "length")[0]


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.FITS])
def test_only_what_fits_is_ranked(outcome: Outcome) -> None:
    assert [] == fitting([trial_of(1, FASTER, seconds=None, outcome=outcome)])


def test_confirmations_are_not_ranked_but_a_failed_one_removes_its_candidate() -> None:
    fast = trial_of(1, FASTER, seconds=1.0)
    again = trial_of(2, FASTER, role="confirmation", seconds=0.1)
    assert [fast, BASELINE] == ranking([BASELINE, fast, again], "throughput")
    failed = trial_of(3, FASTER, role="confirmation", seconds=None, outcome=Outcome.OOM_DEVICE)
    assert [BASELINE] == ranking([BASELINE, fast, again, failed], "throughput")
    disturbed = trial_of(3, FASTER, role="confirmation", seconds=None, outcome=Outcome.POLLUTED)
    assert fast == ranking([BASELINE, fast, disturbed], "throughput")[0]


def test_a_ratio_is_the_geometric_mean_of_its_pairs() -> None:
    ratio = paired_ratio([2.0, 4.0, 8.0], [1.0, 1.0, 1.0], "k")
    assert ratio.value == pytest.approx(4.0)
    assert ratio.low < 4.0 < ratio.high
    assert ratio.pairs == 3


def test_a_ratio_lies_in_its_own_interval_however_lopsided_the_pairs_are() -> None:
    # Seven pairs of twelve exactly alike, the rest a little faster: the median is none of them.
    pairs = [1.0] * 7 + [1.01, 1.02, 1.05, 1.08, 1.1]
    ratio = paired_ratio(pairs, [1.0] * 12, "k")
    assert ratio.low < ratio.value < ratio.high


def test_what_slows_both_members_of_a_pair_does_not_widen_the_interval() -> None:
    ratio = paired_ratio([2.0, 20.0, 4.0], [1.0, 10.0, 2.0], "k")
    assert ratio.low == pytest.approx(2.0)
    assert ratio.high == pytest.approx(2.0)


def test_one_pair_proves_nothing() -> None:
    ratio = paired_ratio([2.0], [1.0], "k")
    assert ratio.low == 0.0
    assert ratio.high > 1e100
    assert np.isfinite(ratio.high), "it must survive JSON"


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        noise = np.exp(rng.normal(0.0, 0.05, size=(2, 3)))
        ratio = paired_ratio(list(1.3 * noise[0]), list(noise[1]), "k")
        held += ratio.low <= 1.3 <= ratio.high
    assert 0.92 <= held / 400 <= 0.98


OFFLOADED = candidate_of(activation_offloading=True)


def test_offloading_that_saves_nothing_and_is_slower_is_not_recommended() -> None:
    # BC43: a peak smaller by less than the noise is no saving, whatever is minimised.
    off = trial_of(1, OWN, seconds=10.0, peak_bytes=1000 * MIB)
    on = trial_of(2, OFFLOADED, seconds=13.0, peak_bytes=996 * MIB)
    assert [off, on] == ranking([off, on], "memory")
    (found,) = in_vain([off, on])
    assert (found.knob, found.trial, found.without) == ("activation_offloading", on, off)


def test_a_saver_that_saves_is_recommended_for_memory() -> None:
    off = trial_of(1, OWN, seconds=10.0, peak_bytes=1000 * MIB)
    on = trial_of(2, OFFLOADED, seconds=13.0, peak_bytes=600 * MIB)
    assert [on, off] == ranking([off, on], "memory")
    assert in_vain([off, on]) == []
    faster = trial_of(3, OFFLOADED, seconds=9.0, peak_bytes=1000 * MIB)
    assert in_vain([off, faster]) == [], "it costs nothing"


def test_a_saver_is_judged_only_against_the_same_candidate_without_it() -> None:
    other = trial_of(1, SMALLER, seconds=5.0, peak_bytes=500 * MIB)
    on = trial_of(2, OFFLOADED, seconds=13.0, peak_bytes=600 * MIB)
    assert in_vain([other, on]) == []


#: What else was probed, and why the user's own config is chosen.
UNBEATEN: dict[str, tuple[list[TrialRecord], str]] = {
    "slower": ([trial_of(1, SMALLER, seconds=20.0)], "nothing that was probed beats your own"),
    "nothing": ([], "nothing else was probed"),
    "too large": (
        [
            trial_of(1, LONGER, seconds=None, outcome=Outcome.OOM_DEVICE),
            trial_of(2, FASTER, seconds=None, outcome=Outcome.OOM_DEVICE),
        ],
        "none of the 2 others that were probed fits",
    ),
    "failed": (
        [
            trial_of(1, LONGER, seconds=None, outcome=Outcome.OOM_DEVICE),
            trial_of(2, FASTER, seconds=None, outcome=Outcome.CRASHED),
        ],
        "none of the 2 others that were probed could be measured",
    ),
}


@pytest.mark.parametrize("case", UNBEATEN)
def test_an_own_config_that_is_kept_says_what_it_was_held_against(case: str) -> None:
    others, words = UNBEATEN[case]
    best, because = choice([BASELINE, *others], None, "throughput")
    assert BASELINE == best
    assert words in because
    assert (case == "nothing") == ("--trials" in because), "what to do"
