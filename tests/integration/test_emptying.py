"""TRL's own trainer gives cached memory back in a probe as often as is noted, and in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.outcome import Outcome
from autotune.probe.protocol import EMPTIED_EVERY, ProbeSpec, RowPlan
from autotune.probe.runner import Runner
from tests.support.rows import write_job
from tests.support.warm import Shared

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("every", "expected"), [(50, EMPTIED_EVERY), (2, 2), (1, 1)], ids=["rarely", "often", "always"]
)
def test_some_timed_updates_empty_the_cache_and_others_do_not(
    shared: Shared, tmp_path: Path, every: int, expected: int
) -> None:
    model, rows = write_job(tmp_path, [40] * 16)
    options: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    options |= {"bf16": False, "torch_empty_cache_steps": every}
    spec = ProbeSpec(
        trainer=Trainer.SFT,
        model_dir=model,
        weights="random",
        options=options,
        device="cpu",
        rows_dir=rows,
        plan=RowPlan(worst=((0, 1),), paired=tuple(range(16)), block=()),
    )
    report = Runner(shared, tmp_path / "run").probe(spec, name="emptying", deadline_s=200.0)
    measured = report.measurement
    assert Outcome.FITS is report.ending.outcome and measured is not None, report.ending
    timed = [step.emptied for step in measured.timed_steps]
    updates = timed[::2]
    assert updates == timed[1::2], "both micro-steps of an update"
    assert any(updates) and all(updates) == (expected == 1)
    first = updates.index(True)
    assert [(at - first) % expected == 0 for at in range(len(updates))] == updates
