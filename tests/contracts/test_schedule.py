"""What every trainer's probe really runs, as its steps were realised (DESIGN.md 5.1, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.core.job import Trainer
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.probe.protocol import ProbeSpec, RowPlan
from autotune.probe.runner import Runner
from tests.support.models import tiny_model
from tests.support.rows import write_trainer_rows
from tests.support.warm import Shared

pytestmark = pytest.mark.integration

#: Every 50th row is long, the longest is the last; two and a half blocks of rows for packing.
LENGTHS = (*[6 + row % 30 + (100 if row % 50 == 0 else 0) for row in range(1199)], 200)
LIMIT = 160
BATCH = 3
PAIRED = tuple(range(0, 1200, 17))[:64]
TRAINERS = tuple(Trainer(name) for name in ("sft", "dpo", "reward", "kto"))


@dataclass
class Bench:
    """Probe a tiny model under any trainer."""

    runner: Runner
    model: Path
    folder: Path

    def probe(self, trainer: Trainer, plan: RowPlan, **options: Any) -> Measurement:
        rows = self.folder / trainer.value
        spec = ProbeSpec(
            trainer=trainer,
            model_dir=str(self.model),
            weights="random",
            options={
                "per_device_train_batch_size": BATCH,
                "gradient_accumulation_steps": 8,
                "max_length": LIMIT,
                "bf16": False,
                **options,
            },
            device="cpu",
            rows_dir=str(rows) if rows.is_dir() else write_trainer_rows(rows, trainer, LENGTHS),
            plan=plan,
        )
        report = self.runner.probe(spec, name=trainer.value, deadline_s=300.0)
        assert report.ending.outcome is Outcome.FITS, report.ending
        assert report.measurement is not None
        return report.measurement


@pytest.fixture(scope="module")
def bench(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("schedule")
    model = tiny_model(folder / "model", max_position_embeddings=2048)
    return Bench(Runner(shared, folder), model, folder)


#: Reward leaves out the row that is longer than its limit instead of cutting it.
LONGEST = {Trainer.REWARD: 1150}


def plan_of(trainer: Trainer) -> RowPlan:
    """Return the worst rows first, and a sample over the whole distribution."""
    longest = LONGEST.get(trainer, 1199)
    return RowPlan(worst=((longest, 1100, 1050),), paired=PAIRED, block=(), batch=BATCH)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trainers_probe_runs_what_is_promised(trainer: Trainer, bench: Bench) -> None:
    measured = bench.probe(trainer, plan_of(trainer))
    memory, timed = measured.memory_steps, measured.timed_steps
    sides = 2 if trainer in (Trainer.DPO, Trainer.REWARD) else 1
    # memory: whole updates of two micro-steps, at least two of each row set, the widest in it
    assert len(memory) >= 4 and len(memory) % 4 == 0
    assert max(s.padded_tokens for s in (*memory, *timed)) == memory[0].padded_tokens
    assert max(measured.worst_tokens) == memory[0].width
    assert len(measured.grad_norms) >= 2 and all(measured.grad_norms)
    # speed: the paired rows, all of them, after one update of the largest shapes
    assert len(timed) >= 8
    assert sum(s.sequences for s in timed) >= 64
    assert 0 == len(timed) % 2
    assert {BATCH * sides} == {s.rows for s in timed}
    assert len(timed) == 2 * len(measured.optimizer_seconds)
    assert max(s.width for s in timed) == measured.warmup_steps[0].width
    assert 2 == len(measured.warmup_steps)
    limited = np.minimum(np.asarray(LENGTHS)[list(PAIRED)], LIMIT)
    assert max(s.longest for s in timed) == limited.max(), "rows of the sample, cut as TRL cuts"
    assert not measured.speed_rows_repeated or sum(s.sequences for s in timed) > len(PAIRED)


@pytest.mark.parametrize("strategy", ["bfd", "wrapped"])
def test_packed_rows_are_packed_from_a_whole_block(strategy: str, bench: Bench) -> None:
    block = RowPlan(worst=(), paired=(), block=tuple(range(200, 1200)), batch=BATCH)
    measured = bench.probe(Trainer.SFT, block, packing=True, packing_strategy=strategy)
    full = BATCH * LIMIT
    assert {full} == {s.useful_tokens for s in measured.memory_steps}, "full rows only"
    assert len(measured.timed_steps) >= 8
    tokens = sum(s.useful_tokens for s in measured.timed_steps)
    assert tokens >= 64 * float(np.mean(LENGTHS)), "as many as 64 rows have"
    fill = tokens / (full * len(measured.timed_steps))
    assert 0.9 < fill <= 1.0, "the fill of a thousand rows, not of the few that are timed"
    # the user's documents are counted, whatever became of their borders
    documents = sum(s.sequences for s in measured.timed_steps) / len(measured.timed_steps)
    assert documents == pytest.approx(full * fill / np.mean(LENGTHS[200:]), rel=0.1)


def test_the_maximum_over_the_row_sets_is_the_peak(bench: Bench) -> None:
    # One row set alone is never larger than all of them together.
    both = bench.probe(Trainer.SFT, plan_of(Trainer.SFT))
    short = RowPlan(worst=((3, 4, 5),), paired=PAIRED[1:], block=(), batch=BATCH)
    alone = bench.probe(Trainer.SFT, short)
    assert (alone.peaks.allocated_bytes or 0) < (both.peaks.allocated_bytes or 0)
