"""A model that keeps a little more memory at every step is found out before it is emitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome
from autotune.probe.protocol import ProbeSpec, RowPlan, Verification
from autotune.probe.runner import Runner
from tests.support.models import with_code
from tests.support.rows import write_job
from tests.support.warm import Shared

pytestmark = pytest.mark.integration

#: Kept at every forward pass; a step of the tiny model peaks at a few MiB.
_KEPT_BYTES = 64 * 1024
_LEAKY = f"""
import torch
from transformers import Qwen3ForCausalLM


class LeakyForCausalLM(Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.kept = []
        self.model.embed_tokens.register_forward_hook(self.keep)

    def keep(self, *_):
        self.kept.append(torch.zeros({_KEPT_BYTES}, dtype=torch.uint8))
"""


def verify(shared: Shared, folder: Path, *, leaky: bool) -> ProbeReport:
    """Verify one candidate of a tiny model."""
    model, rows = write_job(folder, [40] * 16)
    options: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    options |= {"bf16": False, "gradient_checkpointing": False, "trust_remote_code": leaky}
    if leaky:
        with_code(Path(model), _LEAKY, "LeakyForCausalLM")
    spec = ProbeSpec(
        trainer=Trainer.SFT,
        model_dir=model,
        weights="random",
        options=options,
        device="cpu",
        rows_dir=rows,
        plan=RowPlan(worst=((0, 1),), paired=tuple(range(16)), block=()),
        verification=Verification(),
    )
    return Runner(shared, folder / "run").probe(spec, name="verify", deadline_s=600.0)


def test_a_model_that_leaks_is_not_safe(shared: Shared, tmp_path: Path) -> None:
    report = verify(shared, tmp_path, leaky=True)
    assert report.measurement is not None, report.ending
    assert Outcome.INVALID is report.ending.outcome, report.measurement.update_peaks_bytes
    assert "still growing" in report.ending.reason


def test_the_same_model_without_the_leak_is(shared: Shared, tmp_path: Path) -> None:
    report = verify(shared, tmp_path, leaky=False)
    assert Outcome.FITS is report.ending.outcome, report.ending
