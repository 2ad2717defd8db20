"""The longer look at the chosen candidate before it is emitted (DESIGN.md 5.9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autotune.core.lengths import Lengths
from autotune.core.outcome import Outcome, Phase
from autotune.core.result import TrialRecord
from autotune.probe.protocol import ProbeSpec
from autotune.study.choose import choice, verification_of
from autotune.study.plan import EvalRows
from autotune.study.search import Search
from autotune.testing.fake_script import Grows, Hangs, Happening, Raises
from tests.support.facts import GPU, MIB, facts_of
from tests.support.search import search_of

FACTS = facts_of(device=GPU)
OOM = Raises("torch.OutOfMemoryError", "CUDA out of memory.", phase=Phase.SAVE, step=99)


def verified(search: Search) -> list[TrialRecord]:
    """Return a search's verifications."""
    return [t for t in search.trials if t.role == "verification"]


def chosen(search: Search) -> TrialRecord | None:
    """Return what a search would emit."""
    return choice(search.trials, search.speedup, search.objective)[0]


def at_verification(
    happening: Callable[[int, ProbeSpec], Happening | None],
) -> Callable[[int, ProbeSpec], Happening | None]:
    """Let something befall verifications only, by their order."""
    seen: list[ProbeSpec] = []

    def script(_: int, spec: ProbeSpec) -> Happening | None:
        if spec.verification is None:
            return None
        seen.append(spec)
        return happening(len(seen) - 1, spec)

    return script


def test_the_chosen_candidate_is_run_for_twenty_updates_in_a_process_of_its_own(
    tmp_path: Path,
) -> None:
    search = search_of(tmp_path, FACTS)
    search.run()
    (record,) = verified(search)
    assert record.report.measurement is not None
    assert 20 == len(record.report.measurement.update_peaks_bytes)
    best = chosen(search)
    assert best is not None and record is verification_of(search.trials, best)


def test_one_whose_memory_still_grows_gives_way_to_the_next(tmp_path: Path) -> None:
    grows = at_verification(lambda k, _: Grows(40 * MIB) if k == 0 else None)
    search = search_of(tmp_path, FACTS, script=grows)
    search.run()
    first, second = verified(search)
    assert first.report.ending.outcome is Outcome.INVALID
    assert "still growing" in first.report.ending.reason
    best = chosen(search)
    assert best is not None and best.candidate.key == second.candidate.key
    assert first.candidate.key != second.candidate.key


def test_one_that_runs_out_of_memory_while_saving_gives_way_to_the_next(tmp_path: Path) -> None:
    search = search_of(
        tmp_path, FACTS, script=at_verification(lambda k, _: OOM if k == 0 else None)
    )
    search.run()
    first, second = verified(search)
    assert (Outcome.OOM_DEVICE, Phase.SAVE) == (
        first.report.ending.outcome,
        first.report.ending.phase,
    )
    best = chosen(search)
    assert best is not None and best.candidate.key == second.candidate.key


def test_when_only_evaluation_fails_its_batch_is_halved_until_it_fits(tmp_path: Path) -> None:
    def evaluation(_: int, spec: ProbeSpec) -> Happening | None:
        too_large = spec.options.get("per_device_eval_batch_size", 8) > 2
        failure = Raises("torch.OutOfMemoryError", "CUDA out of memory.", Phase.EVAL, 99)
        return failure if too_large else None

    facts = facts_of(device=GPU, options={"per_device_eval_batch_size": 8})
    search = search_of(tmp_path, facts, script=at_verification(evaluation))
    search.eval_rows = EvalRows("eval-rows", facts.lengths)
    search.run()
    assert [8, 4, 2] == [t.options.get("per_device_eval_batch_size", 8) for t in verified(search)]
    best = chosen(search)
    assert best is not None and best.candidate.key == verified(search)[0].candidate.key


def test_a_verification_that_takes_too_long_leaves_the_choice_unverified(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, script=at_verification(lambda *_: Hangs()))
    search.run()
    (record,) = verified(search)
    assert Outcome.TIMEOUT is record.report.ending.outcome
    best = chosen(search)
    assert best is not None and best.candidate.key == record.candidate.key
    assert verification_of(search.trials, best) is None


def test_the_evaluation_rows_of_a_verification_are_the_longest(tmp_path: Path) -> None:
    facts = facts_of(device=GPU, options={"per_device_eval_batch_size": 8})
    search = search_of(tmp_path, facts)
    lengths: Lengths = facts.lengths
    search.eval_rows = EvalRows("eval-rows", lengths)
    search.run()
    asked = [s.verification for s in search.prober.asked if s.verification]  # type: ignore[attr-defined]
    assert lengths.longest_row in asked[0].eval_rows
    assert 16 == len(asked[0].eval_rows)
