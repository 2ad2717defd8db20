"""fp16 as on a GPU: its gradient scaler skips early updates on purpose, which is no failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.measurement import Measurement
from autotune.core.outcome import Ending, Outcome
from autotune.probe.child.probe import Probe
from autotune.probe.classify import classify
from autotune.probe.observed import Observed
from autotune.probe.protocol import ProbeSpec, RowPlan, Verification
from tests.support.facts import GIB
from tests.support.rows import write_job
from tests.support.scaled import scale_gradients

pytestmark = pytest.mark.integration


def probed(folder: Path, optim: str = "adamw_torch_fused", **spec: Any) -> Measurement:
    """Measure a tiny model in fp16, in this process."""
    model, rows = write_job(folder, [9 + n for n in range(40)])
    options = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "max_length": 64,
        "fp16": True,
        "optim": optim,
    }
    asked = ProbeSpec(
        trainer=Trainer.SFT,
        model_dir=model,
        weights="random",
        options=options,
        device="cpu",
        rows_dir=rows,
        plan=RowPlan(worst=((38, 39),), paired=tuple(range(40)), block=()),
        **spec,
    )
    found = Probe(asked, folder).run()
    assert found is not None
    return found


def ending_of(measured: Measurement) -> Ending:
    seen = Observed(
        failure=None,
        measurement=measured,
        code=0,
        timed_out=False,
        deadline_s=60.0,
        peak_rss_bytes=None,
        host_total_bytes=64 * GIB,
        cap_bytes=None,
        device="cpu",
    )
    return classify(seen)[0]


# A fused optimizer is called even when its update is skipped, and skips it by itself.
@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused"])
def test_skipped_updates_are_counted_and_two_that_took_place_are_measured(
    optim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale_gradients(monkeypatch, scale=2.0**26)
    measured = probed(tmp_path, optim)
    skipped = measured.skipped_updates
    assert skipped > 2, "more than the memory phase would have had"
    assert 4 < len(measured.memory_steps) <= 2 * (2 + skipped)
    assert len(measured.timed_steps) >= 8
    assert 0 < len(measured.optimizer_seconds) <= len(measured.timed_steps) // 2
    assert measured.updates == len(measured.grad_norms)
    assert all(norm is not None and norm > 0 for norm in measured.grad_norms)
    assert Outcome.FITS is ending_of(measured).outcome


def test_a_scale_that_fits_from_the_start_costs_no_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale_gradients(monkeypatch, scale=2.0**8)
    measured = probed(tmp_path)
    assert 0 == measured.skipped_updates
    assert 4 == len(measured.memory_steps)
    assert Outcome.FITS is ending_of(measured).outcome


def test_a_verification_in_fp16_mixes_lengths_once_the_scale_has_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale_gradients(monkeypatch, scale=2.0**26)
    measured = probed(tmp_path, verification=Verification(save=True))
    assert measured.skipped_updates > 2
    assert 20 == len(measured.update_peaks_bytes)
    assert measured.saved
    assert Outcome.FITS is ending_of(measured).outcome


def test_gradients_that_overflow_at_every_scale_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    own = transformers.Trainer.training_step

    def overflows(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = own(self, *args, **kwargs)
        next(iter(self.model.parameters())).grad.fill_(float("inf"))
        return loss

    scale_gradients(monkeypatch)
    monkeypatch.setattr(transformers.Trainer, "training_step", overflows)
    measured = probed(tmp_path)
    assert (0, 22) == (measured.updates, measured.skipped_updates)
    assert () == measured.timed_steps, "nothing is timed that does not train"
    ending = ending_of(measured)
    assert Outcome.NON_FINITE is ending.outcome
    assert "did not settle" in ending.reason
