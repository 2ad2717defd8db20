"""A traced step of a small model, for tests; torch is imported on call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.core.traced_step import TracedStep
from autotune.predict.request import Documents, Row, Target, TraceRequest

#: bitsandbytes' CPU kernels want whole blocks of 64 weights.
SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "head_dim": 64}
SFT_ROWS = (Documents(tokens=(120,), label_tokens=60), Documents(tokens=(40,)))


def traced(
    model: Path,
    options: dict[str, Any],
    rows: tuple[Row, ...] = SFT_ROWS,
    *,
    trainer: Trainer = Trainer.SFT,
    target: Target = "cuda",
    whole: bool = False,
    capability: str | None = None,
) -> TracedStep:
    """Return the traced step of one candidate."""
    from autotune.predict.traced import trace

    request = TraceRequest(
        trainer=trainer,
        model_dir=str(model),
        options=options,
        rows=rows,
        target=target,
        capability=capability,
    )
    return trace(request, whole=whole)
