"""What is traced: a trainer, a model's config, final options and the lengths of one micro-batch.

Values only; the tracer turns them into tensors.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from autotune.core.job import Frozen, Trainer

Target = Literal["cpu", "cuda"]


class Documents(Frozen):
    """One row of SFT.

    Args:
        tokens: tokens of each document in it, after cutting; more than one where rows are packed.
        label_tokens: how many of its last tokens are trained on; None: all.
    """

    tokens: tuple[int, ...] = Field(min_length=1)
    label_tokens: int | None = Field(default=None, ge=0)

    @property
    def all_tokens(self) -> int:
        """Tokens of the row."""
        return sum(self.tokens)


class Pair(Frozen):
    """One row of DPO or Reward.

    Args:
        prompt: tokens both sides begin with; 0 for Reward, whose sides are whole.
        chosen: tokens of the better side, without the prompt.
        rejected: tokens of the worse side, without the prompt.
    """

    prompt: int = Field(ge=0)
    chosen: int = Field(ge=1)
    rejected: int = Field(ge=1)

    @property
    def all_tokens(self) -> int:
        """Tokens of both sides."""
        return 2 * self.prompt + self.chosen + self.rejected


class Judged(Frozen):
    """One row of KTO.

    Args:
        prompt: tokens of the prompt.
        completion: tokens of the completion.
        desirable: its label.
    """

    prompt: int = Field(ge=1)
    completion: int = Field(ge=1)
    desirable: bool = True

    @property
    def all_tokens(self) -> int:
        """Tokens of prompt and completion."""
        return self.prompt + self.completion


Row = Documents | Pair | Judged


class TraceRequest(Frozen):
    """Ask for one candidate's step on one micro-batch.

    Args:
        trainer: which TRL trainer.
        model_dir: folder with the model's ``config.json``; neither weights nor tokenizer needed.
        options: final TRL options, the candidate's included.
        rows: the rows of the micro-batch, of the kind the trainer takes.
        accumulates: whether an update has more than one micro-step, so that gradients are held
            while activations are.
        target: the kind of device whose step is asked for.
        precompute: follow the one-off pass over the reference instead of a training step; its work
            is the ``micro_step``.
        capability: its CUDA compute capability such as ``9.0``; None where it is not known.
    """

    trainer: Trainer
    model_dir: str
    options: dict[str, Any] = Field(default_factory=dict)
    rows: tuple[Row, ...] = Field(min_length=1)
    accumulates: bool = True
    target: Target = "cuda"
    capability: str | None = None
    precompute: bool = False
