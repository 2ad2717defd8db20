"""Whole searches on a made-up machine: the order of events and what every ending leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable
from autotune.core.outcome import Outcome, Phase
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical
from autotune.probe.protocol import ProbeSpec
from autotune.study.choose import ranking, reference
from autotune.study.proof import CONFIRMATION_ROUNDS
from autotune.study.search import Search
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_script import (
    Dies,
    Hangs,
    Happening,
    Interrupts,
    Pollutes,
    Raises,
    Spills,
    always,
    at,
    out_of_memory,
)
from tests.support.facts import GIB, GPU, MIB, candidate_of, facts_of
from tests.support.search import search_of

#: Padding is expensive here, recomputation dear, and 8 rows without checkpointing need 2.6 GiB.
FACTS = facts_of(device=GPU)
OWN = canonical(user_candidate(FACTS), FACTS)


def outcomes(search: Search) -> list[Outcome]:
    return [t.report.ending.outcome for t in search.trials]


def keys(search: Search, *roles: str) -> list[str]:
    return [t.candidate.key for t in search.trials if not roles or t.role in roles]


def optuna_trials(search: Search) -> list[Any]:
    return list(search.store._study.get_trials(deepcopy=False))


def test_the_users_own_config_is_measured_first(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=4)
    search.run()
    assert search.trials[0].role == "baseline"
    assert search.trials[0].candidate == OWN
    assert [t.role for t in search.trials[1:4]] == ["search"] * 3
    assert [t.number for t in search.trials] == list(range(len(search.trials)))


def test_no_candidate_is_probed_twice_and_a_small_space_is_exhausted(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=100)
    search.run()
    probed = keys(search, "baseline", "search")
    assert len(probed) == len(set(probed))
    assert set(probed) == {c.key for c in search.space.candidates} | {OWN.key}


def test_the_winner_and_the_reference_are_measured_in_turns(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=8)
    search.run()
    best = ranking(search.trials, "throughput")[0]
    assert keys(search, "confirmation") == [OWN.key, best.candidate.key] * CONFIRMATION_ROUNDS
    assert search.speedup is not None
    assert search.speedup.value > 1.2
    assert search.speedup.reference == OWN.key


def test_a_baseline_that_is_already_best_needs_no_confirmation(tmp_path: Path) -> None:
    facts = facts_of(
        device=GPU,
        options={"gradient_checkpointing": False, "padding_free": True, "max_length": None},
    )
    search = search_of(tmp_path, facts, trials=100)
    search.run()
    assert search.speedup is None
    assert keys(search, "confirmation") == []


def too_large_without_full_checkpointing() -> dict[str, Any]:
    return {"machine": FakeMachine(token_bytes=2 * MIB), "memory_bytes": 3 * GIB}


def test_a_baseline_that_does_not_fit_makes_a_near_candidate_the_reference(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=100, **too_large_without_full_checkpointing())
    search.run()
    assert search.trials[0].report.ending.outcome is Outcome.OOM_DEVICE
    against = reference(search.trials)
    assert against is not None
    differing = [
        len(t.candidate.differences(OWN))
        for t in search.trials
        if t.estimate and t.changes == "neutral"
    ]
    assert against.changes == "neutral"
    assert len(against.candidate.differences(OWN)) == min(differing)


def test_nothing_fits_is_found_out_after_the_cheapest_candidate(tmp_path: Path) -> None:
    # BC22: batch 1 and every saver on is looked at second; nothing else is tried.
    search = search_of(tmp_path, FACTS, memory_bytes=200 * MIB, trials=100)
    search.run()
    assert len(search.trials) == 2
    assert search.trials[1].candidate.get("per_device_train_batch_size") == 1
    assert search.trials[1].candidate.get("gradient_checkpointing") == "full"
    assert all(o.is_memory for o in outcomes(search))


def test_resuming_a_search_in_which_nothing_fits_tries_nothing_more(tmp_path: Path) -> None:
    tight: dict[str, Any] = {"memory_bytes": 200 * MIB, "trials": 100}
    first = search_of(tmp_path, FACTS, **tight)
    first.run()
    first.store.close()
    again = search_of(tmp_path, FACTS, **tight)
    again.run()
    assert keys(again) == keys(first)


SAME: dict[str, Happening] = {
    "an unrelated error (BC22)": Raises("builtins.RuntimeError", "shapes do not match"),
    "a missing module (BC52)": Raises(
        "builtins.ImportError", "no module named rewards", Phase.LOAD
    ),
    "a wrong path (BC52)": Raises("builtins.OSError", "there is no model at /x", Phase.LOAD),
    "a hub that cannot be reached (BC52)": Raises(
        "huggingface_hub.errors.LocalEntryNotFoundError", "outgoing traffic is disabled", Phase.LOAD
    ),
    "a folder that cannot be written to (BC52)": Raises(
        "builtins.PermissionError", "[Errno 30] Read-only file system: '/x'", Phase.LOAD
    ),
    "a process that cannot start (BC52)": Dies(127, "python: not found"),
}


@pytest.mark.parametrize("case", SAME)
def test_one_cause_that_is_not_memory_stops_the_search_and_is_shown(
    case: str, tmp_path: Path
) -> None:
    happening = SAME[case]
    search = search_of(tmp_path, FACTS, script=always(happening), trials=50)
    with pytest.raises(EnvironmentUnable) as caught:
        search.run()
    assert len(search.trials) == 3
    words = happening.message if isinstance(happening, Raises) else "python: not found"
    assert words in str(caught.value)
    assert "logs/0002.txt" in str(caught.value)


def test_one_cause_is_recognised_when_only_addresses_and_sizes_differ(tmp_path: Path) -> None:
    def script(order: int, spec: ProbeSpec) -> Happening:
        return Raises("builtins.RuntimeError", f"bad tensor at 0x7f{order:02x} of size {order}")

    search = search_of(tmp_path, FACTS, script=script, trials=50)
    with pytest.raises(EnvironmentUnable, match="first 3 probes"):
        search.run()


def test_different_causes_do_not_stop_the_search(tmp_path: Path) -> None:
    def script(order: int, spec: ProbeSpec) -> Happening | None:
        kinds = ("builtins.KeyError", "builtins.IndexError", "builtins.AttributeError")
        return Raises(kinds[order % 3], "x") if order < 6 else None

    search = search_of(tmp_path, FACTS, script=script, trials=6)
    search.run()
    assert Outcome.FITS in outcomes(search)


BUSY = Raises("torch.AcceleratorError", "CUDA error: CUDA-capable device(s) is/are busy")
FLAKY = Raises("torch.AcceleratorError", "CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("fault", "memory_only"), [(BUSY, [False, False]), (FLAKY, [False, True, False])]
)
def test_a_fault_that_is_gone_in_the_next_process_is_never_scored(
    fault: Raises, memory_only: list[bool], tmp_path: Path
) -> None:
    # An unknown error is first looked at without the cap, to see whether it was memory.
    search = search_of(tmp_path, FACTS, script=at({0: fault}), trials=1)
    search.run()
    assert outcomes(search)[0] is Outcome.FITS
    asked: Any = search.prober
    assert memory_only == [spec.memory_only for spec in asked.asked[: len(memory_only)]]


def test_a_fault_that_stays_is_a_crash_after_one_retry(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, script=at({0: BUSY, 1: BUSY, 2: BUSY}), trials=1)
    search.run()
    assert outcomes(search)[0] is Outcome.CRASHED
    asked: Any = search.prober
    assert len(asked.asked) >= 3


def test_an_unknown_error_near_the_limit_is_memory(tmp_path: Path) -> None:
    # The same candidate without the cap needs more than the cap.
    machine = FakeMachine(token_bytes=2 * MIB)
    tight: dict[str, Any] = {"machine": machine, "memory_bytes": int(5.5 * GIB), "trials": 1}
    search = search_of(tmp_path, FACTS, script=at({0: FLAKY}), **tight)
    search.run()
    assert outcomes(search)[0] is Outcome.OOM_DEVICE
    assert "illegal memory access" in search.trials[0].report.ending.reason


def test_what_a_rule_is_against_never_becomes_a_trial(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=1)
    refused = OWN.with_knobs(packing="bfd", max_length=None)
    record = search.probe(refused, "search")
    assert record.report.ending.outcome is Outcome.INVALID
    assert optuna_trials(search) == []


def test_wrapped_rows_are_labelled_as_mixing_documents_whatever_they_gain(tmp_path: Path) -> None:
    # BC17
    allowed = frozenset({"mixing", "effective-batch"})
    facts = facts_of(device=GPU, allow=allowed, options={"per_device_train_batch_size": 1})
    search = search_of(tmp_path, facts, trials=1)
    wrapped = candidate_of(packing="wrapped", per_device_train_batch_size=1)
    record = search.probe(canonical(wrapped, facts), "search")
    assert record.report.ending.outcome is Outcome.FITS, record.report.ending
    assert record.changes == "mixing"
    assert "see each other" in record.note


def test_memory_endings_never_stop_the_search_as_one_cause(tmp_path: Path) -> None:
    def script(order: int, spec: ProbeSpec) -> Happening | None:
        batch = spec.options.get("per_device_train_batch_size", 8)
        return out_of_memory("cuda:0", Phase.STEADY) if batch > 1 else None

    search = search_of(tmp_path, FACTS, script=script, trials=10)
    search.run()
    assert outcomes(search).count(Outcome.OOM_DEVICE) >= 3
    assert reference(search.trials) is not None


def test_memory_endings_enter_optuna_complete_and_infeasible_and_others_failed(
    tmp_path: Path,
) -> None:
    def script(order: int, spec: ProbeSpec) -> Happening | None:
        return {
            1: out_of_memory("cuda:0", Phase.OPTIMIZER_STEP),
            2: Spills(30 * GIB),
            3: Hangs(),
            4: Raises("builtins.ValueError", "refused", Phase.LOAD),
        }.get(order)

    search = search_of(tmp_path, FACTS, script=script, trials=5)
    search.run()
    told = optuna_trials(search)
    ends = {t.user_attrs["outcome"]: t for t in told}
    assert ["oom_device", "spilled", "timeout", "invalid", "fits"] == list(ends)
    assert ["COMPLETE", "COMPLETE", "FAIL", "FAIL", "COMPLETE"] == [t.state.name for t in told]
    for name in ("oom_device", "spilled"):
        assert ends[name].constraints["memory"] > 0.0
    assert ends["fits"].constraints["memory"] <= 0.0
    assert search.trials[0].estimate is not None
    best = search.trials[0].estimate.score_seconds
    assert [best] == ends["oom_device"].values, "the best objective known until then"


def test_a_disturbed_probe_is_taken_again_once(tmp_path: Path) -> None:
    # BC21: memory that somebody else holds is not the candidate's fault.
    def script(order: int, spec: ProbeSpec) -> Happening | None:
        return Pollutes(15 * GIB) if order in (0, 3, 4) else None

    search = search_of(tmp_path, FACTS, script=script, trials=6)
    search.run()
    assert [t.role for t in search.trials[:3]] == ["baseline", "baseline", "search"]
    assert outcomes(search)[:2] == [Outcome.POLLUTED, Outcome.FITS]
    assert search.trials[3].candidate == search.trials[4].candidate
    assert outcomes(search)[3:5] == [Outcome.POLLUTED, Outcome.POLLUTED]
    assert search.trials[3].candidate.key not in keys(search)[5:], "twice is enough"
    assert reference(search.trials) == search.trials[1]


def test_a_step_time_far_beyond_the_others_is_a_spill_not_a_score(tmp_path: Path) -> None:
    # BC49: the driver raises nothing; one extreme time must not become a score.
    search = search_of(tmp_path, FACTS, script=at({3: Spills(None, 40.0)}), trials=5)
    search.run()
    assert outcomes(search)[3] is Outcome.SPILLED
    assert search.trials[3].estimate is None


def test_a_winner_that_fails_while_it_is_confirmed_is_not_the_winner(tmp_path: Path) -> None:
    quiet = search_of(tmp_path / "a", FACTS, trials=8)
    (tmp_path / "b").mkdir()
    quiet.run()
    first = ranking(quiet.trials, "throughput")[0].candidate
    search = search_of(
        tmp_path / "b", FACTS, trials=8, script=at({9: out_of_memory("cuda:0", Phase.STEADY)})
    )
    search.run()
    best = ranking(search.trials, "throughput")[0].candidate
    assert search.trials[9].candidate == first
    assert best != first
    assert keys(search, "confirmation")[-2:] == [OWN.key, best.key]
    assert search.speedup is not None


def test_every_candidate_is_timed_on_the_same_rows(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=6)
    search.run()
    prober: Any = search.prober
    assert len({spec.plan.paired for spec in prober.asked}) == 1
    assert all(spec.cap_bytes == search.budget.usable_bytes for spec in prober.asked)


def shown(search: Search) -> list[tuple[Any, ...]]:
    return [
        (t.number, t.role, t.candidate.key, t.report.ending.outcome, t.estimate)
        for t in search.trials
    ]


NOISY = FakeMachine(noise_ratio=0.02)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    search = search_of(tmp_path_factory.mktemp("whole"), FACTS, machine=NOISY, trials=9)
    search.run()
    return shown(search)


@pytest.mark.parametrize("k", [0, 1, 2, 7, 9, 11, 14])
def test_a_search_interrupted_at_any_probe_and_resumed_has_the_same_trials(
    k: int, tmp_path: Path, uninterrupted: list[tuple[Any, ...]]
) -> None:
    assert len(uninterrupted) == 9 + 2 * CONFIRMATION_ROUNDS + 2  # one comparison, one verification
    first = search_of(tmp_path, FACTS, machine=NOISY, trials=9, script=at({k: Interrupts()}))
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert len(first.trials) == k
    first.store.close()
    again = search_of(tmp_path, FACTS, machine=NOISY, trials=9)
    again.run()
    assert shown(again) == uninterrupted
    assert {t.state.name for t in optuna_trials(again)} <= {"COMPLETE", "FAIL"}


def test_more_trials_on_a_resumed_search_go_on_where_it_stopped(tmp_path: Path) -> None:
    first = search_of(tmp_path, FACTS, trials=4)
    first.run()
    first.store.close()
    again = search_of(tmp_path, FACTS, trials=6)
    again.run()
    assert keys(again)[: len(first.trials)] == keys(first)
    assert [t.role for t in again.trials].count("search") == 5


def test_candidates_of_the_first_minutes_turn_every_lever(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, trials=4)
    search.run()
    second: Candidate = search.trials[1].candidate
    assert second.differences(OWN) == {"gradient_checkpointing": ("none", "full")}


#: By seconds a probe takes: probes of the search, and whether checks of the winner begin.
TIMED = {1.0: (8, True, True), 60.0: (4, True, False), 1000.0: (1, False, False)}


@pytest.mark.parametrize("seconds", TIMED)
def test_a_timeout_ends_the_search_and_bounds_the_checks_after_it(
    seconds: float, tmp_path: Path
) -> None:
    searched, confirmed, verified = TIMED[seconds]
    search = search_of(tmp_path, FACTS, trials=8, timeout_s=200.0)
    search.clock = lambda: seconds * len(search.trials)
    search.run()
    roles = [t.role for t in search.trials]
    assert searched == roles.count("baseline") + roles.count("search")
    assert confirmed == ("confirmation" in roles)
    assert verified == ("verification" in roles)
    assert verified == (not search.unchecked)
