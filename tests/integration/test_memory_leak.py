"""A model that keeps a little more memory at every step is found out before it is emitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome, Phase
from autotune.probe.classify import classify
from autotune.probe.observed import Observed
from autotune.probe.protocol import ProbeSpec, RowPlan, Verification
from autotune.probe.runner import Runner
from tests.support.facts import GIB
from tests.support.models import with_code
from tests.support.rows import write_job, write_rows
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


def test_every_stage_of_a_verification_has_a_peak_of_its_own(
    shared: Shared, tmp_path: Path
) -> None:
    """Evaluation over rows that are longer than any training row needs most."""
    model, rows = write_job(tmp_path, [20 + 3 * n for n in range(16)])
    eval_rows = str(write_rows(tmp_path / "eval", [400] * 8))
    spec = ProbeSpec(
        trainer=Trainer.SFT,
        model_dir=model,
        weights="random",
        options={
            "per_device_train_batch_size": 2,
            "per_device_eval_batch_size": 8,
            "gradient_accumulation_steps": 2,
            "bf16": False,
            "max_length": 512,
        },
        device="cpu",
        rows_dir=rows,
        plan=RowPlan(worst=((14, 15),), paired=tuple(range(16)), block=()),
        verification=Verification(save=True, eval_rows_dir=eval_rows, eval_rows=tuple(range(8))),
    )
    runner = Runner(shared, tmp_path / "run")
    report = runner.probe(spec, name="whole", deadline_s=120.0)
    measured = report.measurement
    assert measured is not None, report.ending
    assert Outcome.FITS is report.ending.outcome, report.ending
    assert ["load", "memory", "mixed", "save", "eval"] == list(measured.stage_peaks)
    assert measured.saved and measured.evaluated
    assert 20 == len(measured.update_peaks_bytes)
    allocated = {name: p.allocated_bytes or 0 for name, p in measured.stage_peaks.items()}
    assert allocated["eval"] > allocated["mixed"] > 0
    assert measured.peaks.allocated_bytes == allocated["eval"]
    assert min(measured.update_peaks_bytes) < max(measured.update_peaks_bytes), "lengths are mixed"
    for peaks in measured.stage_peaks.values():
        for name in ("allocated", "reserved", "process", "device_used"):
            assert (getattr(peaks, f"{name}_bytes") is None) == (name in peaks.absent), name
    cap_bytes = (allocated["mixed"] + allocated["eval"]) // 2
    judged = classify(
        Observed(
            failure=None,
            measurement=measured,
            code=0,
            timed_out=False,
            deadline_s=120.0,
            peak_rss_bytes=None,
            host_total_bytes=64 * GIB,
            cap_bytes=cap_bytes,
            device="cpu",
        )
    )[0]
    assert (Outcome.OOM_HOST, Phase.EVAL) == (judged.outcome, judged.phase)
