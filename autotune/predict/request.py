"""What is traced: a trainer, a model's config, final options and the lengths of one micro-batch.

Values only; the tracer turns them into tensors.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from autotune.core.job import Frozen, Trainer

Target = Literal["cpu", "cuda"]


class RowShape(Frozen):
    """Say how long one row of a micro-batch is.

    Args:
        documents: tokens of each document in it, after cutting; more than one where rows are
            packed.
        label_tokens: how many of its last tokens are trained on; None: all.
    """

    documents: tuple[int, ...] = Field(min_length=1)
    label_tokens: int | None = Field(default=None, ge=0)

    @property
    def tokens(self) -> int:
        """Tokens of the row."""
        return sum(self.documents)


class TraceRequest(Frozen):
    """Ask for one candidate's step on one micro-batch.

    Args:
        trainer: which TRL trainer.
        model_dir: folder with the model's ``config.json``; neither weights nor tokenizer needed.
        options: final TRL options, the candidate's included.
        rows: the rows of the micro-batch.
        accumulates: whether an update has more than one micro-step, so that gradients are held
            while activations are.
        target: the kind of device whose step is asked for.
    """

    trainer: Trainer
    model_dir: str
    options: dict[str, Any] = Field(default_factory=dict)
    rows: tuple[RowShape, ...] = Field(min_length=1)
    accumulates: bool = True
    target: Target = "cuda"
