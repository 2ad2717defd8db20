"""The chosen candidate beside its reference, one update on the same rows (DESIGN.md 5.7)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.study.choose import choice
from autotune.study.guard import not_comparable, update_rows, words
from autotune.study.search import Search
from autotune.testing.fake_script import Differs, Hangs, Interrupts, Raises
from tests.support.facts import GPU, candidate_of, facts_of, trial_of
from tests.support.search import search_of

FACTS = facts_of(device=GPU)
OWN = trial_of(0, candidate_of(), role="baseline")


def compared(search: Search) -> list[TrialRecord]:
    """Return a search's comparisons."""
    return [t for t in search.trials if t.role == "guard"]


def chosen(search: Search) -> TrialRecord:
    """Return what a search would emit."""
    best, _ = choice(search.trials, search.speedup, search.objective)
    assert best is not None
    return best


def test_the_chosen_candidate_is_compared_before_it_is_verified(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS)
    search.run()
    assert ["guard", "verification"] == [t.role for t in search.trials][-2:]
    (record,) = compared(search)
    assert record.candidate == chosen(search).candidate
    assert record.report.compared is not None and record.estimate is None


def test_one_that_trains_something_else_gives_way_to_the_next(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, guards=lambda k, _: Differs() if k == 0 else None)
    search.run()
    first, second = compared(search)
    assert Outcome.INVALID is first.report.ending.outcome
    assert "not equivalent" in first.report.ending.reason
    assert first.candidate.key != second.candidate.key == chosen(search).candidate.key
    verified = [t.candidate.key for t in search.trials if t.role == "verification"]
    assert [second.candidate.key] == verified, "the one that differs is not verified"


def test_when_every_candidate_differs_the_users_own_config_is_kept(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, guards=lambda *_: Differs())
    search.run()
    assert "baseline" == chosen(search).role


def test_a_comparison_that_takes_too_long_leaves_the_choice_and_says_so(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS, guards=lambda *_: Hangs())
    search.run()
    (record,) = compared(search)
    assert record.candidate == chosen(search).candidate
    said = words(chosen(search), search.trials[0], search.trials, FACTS)
    assert said.startswith("NOT compared") and "did not end within" in said


def test_a_comparison_that_meets_a_passing_fault_is_made_once_more(tmp_path: Path) -> None:
    busy = Raises("torch.AcceleratorError", "CUDA error: CUDA-capable device(s) is/are busy")
    search = search_of(tmp_path, FACTS, guards=lambda order, _: busy if order == 0 else None)
    search.run()
    prober: Any = search.prober
    assert 2 == len(prober.compared)
    (record,) = compared(search)
    assert record.report.ending.outcome is Outcome.FITS


def test_an_interrupted_comparison_is_taken_again_and_a_finished_one_is_not(tmp_path: Path) -> None:
    first = search_of(tmp_path, FACTS, storage=None, guards=lambda *_: Interrupts())
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert not compared(first)
    first.store.close()
    second = search_of(tmp_path, FACTS, storage=None)
    second.run()
    assert 1 == len(compared(second))
    second.store.close()
    third = search_of(tmp_path, FACTS, storage=None)
    third.run()
    assert [t.number for t in second.trials] == [t.number for t in third.trials]


def test_real_weights_are_used_where_they_lie(tmp_path: Path) -> None:
    search = search_of(tmp_path, FACTS)
    search.has_weights = True
    search.run()
    prober: Any = search.prober
    assert ["real"] == [spec.weights for spec in prober.compared]
    looked_at = {(spec.verification is not None, spec.weights) for spec in prober.asked}
    assert {(False, "random"), (True, "real")} == looked_at


@pytest.mark.parametrize("changes", ["mixing", "model"])
def test_what_changes_the_model_or_mixes_documents_is_not_comparable(changes: str) -> None:
    other = trial_of(1, candidate_of(per_device_train_batch_size=2), changes=changes)
    assert not_comparable(other, OWN, FACTS)
    said = words(other, OWN, [OWN, other], FACTS)
    assert said.startswith("not compared")


def test_one_that_keeps_no_row_whole_is_not_comparable() -> None:
    facts = facts_of([900] * 40, min_retention_ratio=0.2)
    other = trial_of(1, candidate_of(max_length=256), changes="data")
    assert "no row is short enough" in not_comparable(other, OWN, facts)


def test_the_reference_itself_is_compared_with_nothing() -> None:
    assert "" == words(OWN, OWN, [OWN], FACTS)


@pytest.mark.parametrize(("batch", "count"), [(1, 8), (2, 8), (4, 8), (3, 24), (16, 16)])
def test_an_update_holds_whole_micro_batches_of_both(batch: int, count: int) -> None:
    rows = update_rows(
        candidate_of(per_device_train_batch_size=batch), OWN.candidate, facts_of(device=GPU)
    )
    assert count == len(rows)


def test_rows_one_of_them_would_cut_are_left_out_where_the_user_accepts_to_lose_them() -> None:
    facts = facts_of(device=GPU, min_retention_ratio=0.5)
    shorter = candidate_of(max_length=300)
    rows = update_rows(shorter, OWN.candidate, facts)
    assert all(facts.lengths.tokens[row] <= 300 for row in rows)
    packed = candidate_of(max_length=300, packing="bfd", per_device_train_batch_size=1)
    assert all(facts.lengths.tokens[r] <= 300 for r in update_rows(packed, OWN.candidate, facts))


def test_longer_rows_are_compared_where_they_hold_more_than_may_be_lost() -> None:
    split = candidate_of(max_length=300, packing="bfd_split", per_device_train_batch_size=1)
    rows = update_rows(split, OWN.candidate, FACTS)
    assert len(rows) // 2 == sum(FACTS.lengths.tokens[row] > 300 for row in rows)
    facts = facts_of(device=GPU, allow=frozenset({"split"}))
    assert all(facts.lengths.tokens[r] <= 300 for r in update_rows(split, OWN.candidate, facts))


def test_rows_both_cut_alike_stay_in() -> None:
    facts = facts_of([900] * 40, options={"max_length": 256})
    both = candidate_of(max_length=256), candidate_of(max_length=256, padding_free=True)
    assert 8 == len(update_rows(*both, facts))


def test_rows_repeat_where_there_are_too_few() -> None:
    facts = facts_of([20, 30, 40])
    rows = update_rows(candidate_of(per_device_train_batch_size=2), OWN.candidate, facts)
    assert [2, 3, 3] == sorted(Counter(rows).values())
