"""Tells which optimizer updates fp16's gradient scaler left out, because gradients had overflowed.

A real run begins with a scale of 2**16 that is meant to be too large: the scaler skips updates and
halves it until gradients fit.
"""

from __future__ import annotations

from typing import Any


class SkipWatch:
    """Follow the scale of one trainer."""

    def __init__(self, trainer: Any) -> None:
        """Take the trainer, before it has trained; one without a scaler skips nothing."""
        self._accelerator = trainer.accelerator
        self._scale = self._now()

    def _now(self) -> float:
        scaler = self._accelerator.scaler
        return 1.0 if scaler is None else float(scaler.get_scale())

    def skipped(self) -> bool:
        """Return whether the update that just ended was skipped; asked after every update.

        A fused optimizer is called even then and leaves the update out by itself, which accelerate
        does not notice (1.15, ``AcceleratedOptimizer.step``); the scale falls in either case.
        """
        before, self._scale = self._scale, self._now()
        return bool(self._accelerator.optimizer_step_was_skipped) or self._scale < before


def begin_with(trainer: Any, scale: float) -> bool:
    """Let a trainer's scaler begin with another scale; returns whether it has one.

    Args:
        trainer: before it has trained.
        scale: the first scale.
    """
    scaler = trainer.accelerator.scaler
    if scaler is None:
        return False
    scaler.load_state_dict({**scaler.state_dict(), "scale": scale})
    return True
