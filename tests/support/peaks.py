"""One candidate's peak twice: traced on fake tensors, and measured in a real probe on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.predict.batch import columns
from autotune.predict.request import Documents, Row, TraceRequest
from autotune.probe.protocol import ProbeSpec, RowPlan
from autotune.probe.runner import Runner


def request_of(
    trainer: Trainer, model_dir: Path, options: dict[str, Any], rows: tuple[Row, ...]
) -> TraceRequest:
    """Return the request whose answer `measured_bytes` can be held against."""
    return TraceRequest(
        trainer=trainer,
        model_dir=str(model_dir),
        options=options,
        rows=rows,
        accumulates=int(options.get("gradient_accumulation_steps", 1)) > 1,
        target="cpu",
    )


def step_bytes(phase_bytes: dict[Any, int]) -> tuple[int, str]:
    """Return the most live bytes of an update and the phase that has them; loading left out."""
    phases = {phase: size for phase, size in phase_bytes.items() if phase != "load"}
    highest = max(phases, key=lambda phase: phases[phase])
    return phases[highest], highest


def measured_bytes(runner: Runner, request: TraceRequest, rows_dir: Path) -> int:
    """Return the allocated peak of a real probe on the very rows of a request.

    Args:
        runner: starts the probe.
        request: the candidate.
        rows_dir: folder to write the rows to.
    """
    import datasets

    packed = bool(request.options.get("packing"))
    rows = columns(_before_packing(request.rows) if packed else request.rows, packed=False)
    datasets.Dataset.from_list(rows).save_to_disk(str(rows_dir))
    chosen = tuple(range(len(rows)))
    options = {"per_device_train_batch_size": len(request.rows), **request.options}
    spec = ProbeSpec(
        trainer=request.trainer,
        model_dir=request.model_dir,
        weights="random",
        options=options,
        device="cpu",
        rows_dir=str(rows_dir),
        plan=RowPlan(worst=() if packed else (chosen,), paired=(), block=chosen if packed else ()),
        memory_only=True,
    )
    report = runner.probe(spec, name="peak", deadline_s=300.0)
    assert report.measurement is not None, f"{request.options}: {report.ending}"
    assert report.measurement.peaks.allocated_bytes is not None
    return report.measurement.peaks.allocated_bytes


def _before_packing(rows: tuple[Row, ...]) -> list[Row]:
    """Return rows that TRL packs into these."""
    return [
        Documents(tokens=(tokens,))
        for row in rows
        if isinstance(row, Documents)
        for tokens in row.tokens
    ]
