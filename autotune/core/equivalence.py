"""Two candidates' first optimizer update on the same rows, side by side: numbers, no verdict."""

from __future__ import annotations

from typing import Literal

from autotune.core.job import Frozen

Precision = Literal["fp32", "tf32", "bf16", "fp16"]


class Update(Frozen):
    """One whole optimizer update as TRL's trainer ran it, dropout off.

    Args:
        micro_steps: forward and backward passes that were accumulated.
        label_tokens: tokens trained on, over all of them; where a trainer has no label tokens
            (reward), the tokens it reads.
        loss: the update's loss: the sum of what ``training_step`` returned, each already divided
            by what the trainer divides it by; None where it is not finite.
        grad_norm: gradient norm before clipping; None where it is not finite.
        precision: lowest precision the step computes in; tf32 where fp32 products may be taken in
            tensor cores.
    """

    micro_steps: int
    label_tokens: int
    loss: float | None
    grad_norm: float | None
    precision: Precision


class Compared(Frozen):
    """The same rows and the same weights, once under each of two candidates.

    Args:
        reference: what ratios are made against.
        candidate: the one that would be emitted.
        weights: what the model was given: ``random`` (seeded) or ``real``.
    """

    reference: Update
    candidate: Update
    weights: Literal["random", "real"]
