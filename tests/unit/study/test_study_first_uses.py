"""What a shape costs once (a plan, a compilation) decides nothing, and is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.core.measurement import Measurement
from autotune.core.result import TrialRecord
from autotune.study.findings import findings
from autotune.study.search import Search
from autotune.testing import FakeMachine
from tests.support.facts import GPU, facts_of
from tests.support.search import search_of, space_of

#: Rows of many lengths: unpacked, nearly every micro-batch is as wide as no other.
LENGTHS = tuple(int(n) for n in np.random.default_rng(3).integers(20, 900, 600))
#: A device on which padding costs more than packing's mask.
MACHINE = FakeMachine(step_s=0.02, token_s=3e-5, token_width_s=2e-8)
SPACE = space_of(
    per_device_train_batch_size=[1, 2, 4, 8],
    padding_free=[False, True],
    packing=["none", "bfd"],
    gradient_checkpointing=["none", "full"],
)


def searched(folder: Path, first_use_s: float) -> Search:
    facts = facts_of(LENGTHS, device=GPU, options={"max_length": 1024})
    machine = replace(MACHINE, first_use_s=first_use_s)
    search = search_of(folder, facts, space=SPACE, machine=machine)
    search.limits = replace(search.limits, probe_s=3600.0)
    search.run()
    return search


def best_of(search: Search) -> TrialRecord:
    from autotune.study.choose import choice

    found = choice(search.trials, search.speedup, search.objective)[0]
    assert found is not None
    return found


def measured(trial: TrialRecord) -> Measurement:
    assert trial.report.measurement is not None
    return trial.report.measurement


@pytest.mark.parametrize("first_use_s", [0.5, 20.0])
def test_first_uses_do_not_change_the_winner(first_use_s: float, tmp_path: Path) -> None:
    without, costly = searched(tmp_path / "a", 0.0), searched(tmp_path / "b", first_use_s)
    one, other = best_of(without), best_of(costly)
    assert one.candidate == other.candidate
    assert one.estimate is not None and other.estimate is not None
    assert one.estimate.score_seconds == pytest.approx(other.estimate.score_seconds, rel=1e-6)


def test_what_is_left_out_of_the_times_is_counted(tmp_path: Path) -> None:
    search = searched(tmp_path, 5.0)
    single = [
        t
        for t in search.trials
        if t.estimate is not None
        and t.candidate.get("per_device_train_batch_size") == 1
        and t.candidate.get("packing", "none") == "none"
    ]
    assert single, "rows one by one were tried"
    for trial in single:
        found = measured(trial)
        assert 16 == found.dropped_first_uses, "a sample of sixty-four rows has more widths"
        assert found.shapes_left_out > 16
        assert len(found.steady_steps) >= 64
        assert max(s.seconds for s in found.steady_steps) < 5.0 < found.warmup_steps[1].seconds


def test_what_a_whole_run_pays_for_its_shapes_is_said_apart(tmp_path: Path) -> None:
    search = searched(tmp_path, 5.0)
    best = best_of(search)
    assert best.estimate is not None
    assert best.estimate.first_use_seconds == pytest.approx(5.0 * (best.estimate.shapes or 0))
    (said,) = [n for n in findings(search.trials, best, search.facts) if "first uses" in n]
    assert f"leave out {measured(best).dropped_first_uses} first uses of a shape" in said
    assert "a whole run meets about" in said
    quiet = searched(tmp_path / "quiet", 0.0)
    (said,) = [n for n in findings(quiet.trials, best_of(quiet), quiet.facts) if "first uses" in n]
    assert "a whole run" not in said
