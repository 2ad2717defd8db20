"""The longer look at the chosen candidate: peaks update by update, one save, one evaluation.

DESIGN.md 5.9. Only observes; whether a series of peaks is safe is decided in classify.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from autotune.core.outcome import Phase
from autotune.probe.child.steps import Schedule
from autotune.probe.meters.base import Meter
from autotune.probe.protocol import Verification

#: A checkpoint holds the trained weights and about two optimizer states of the same size.
_CHECKPOINT_COPIES = 3


class PeakSeries:
    """Note the peak of every optimizer update on its own."""

    def __init__(self, trainer: Any, meter: Meter, device: str) -> None:
        """Take the trainer and the meter.

        Args:
            trainer: the trainer that is about to train.
            meter: reset after every update; on the CPU torch's allocator is watched instead,
                because resident pages are too coarse to show a trend.
            device: ``cpu`` or ``cuda:i``.
        """
        self._trainer = trainer
        self._meter = meter
        self._device = device
        self._watch: Any = None
        self._open = False
        self.peaks_bytes: list[int] = []

    def start(self) -> None:
        """Begin the first update's window."""
        self._open = True
        if self._device == "cpu":
            from autotune.probe.meters.cpu import AllocatorWatch

            self._watch = AllocatorWatch(held_tensors(self._trainer))

    def update(self) -> None:
        """End one update's window and begin the next; nothing before the first began."""
        if not self._open:
            return
        if self._device == "cpu":
            self.peaks_bytes.append(self._watch.stop())
        else:
            self.peaks_bytes.append(self._meter.read().allocated_bytes or 0)
            self._meter.reset()
        self.start()

    def stop(self) -> None:
        """End the last window, which no update completed."""
        if self._watch is not None:
            self._watch.stop()


def held_tensors(trainer: Any) -> list[Any]:
    """Return the tensors a trainer holds between updates: parameters, buffers, optimizer states."""
    import torch

    model = trainer.model
    held = [*model.parameters(), *model.buffers()]
    for state in trainer.optimizer.state.values():
        held.extend(v for v in state.values() if isinstance(v, torch.Tensor))
    return held


def saving_options(
    wanted: Verification, parameters: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Return the options under which the trainer saves once, half-way; none when it cannot.

    Args:
        wanted: the verification.
        parameters: sizes from `count_parameters`.
        folder: where the checkpoint goes; removed with the probe.

    Raises:
        OSError: there is too little disk for one checkpoint.
    """
    if not wanted.save:
        return {}
    need = _CHECKPOINT_COPIES * int(parameters["bytes"])
    free = shutil.disk_usage(folder).free
    if free < need:
        raise OSError(28, f"No space left on device: a checkpoint needs {need} bytes, {free} free")
    return {"save_strategy": "steps", "save_steps": max(1, wanted.updates // 2)}


def evaluate(trainer: Any, wanted: Verification, schedule: Schedule) -> bool:
    """Run the trainer's own evaluation on the longest rows.

    Args:
        trainer: a trainer that has trained.
        wanted: the verification.
        schedule: told of the phase.

    Returns:
        Whether there was anything to evaluate.
    """
    if wanted.eval_rows_dir is None or not wanted.eval_rows:
        return False
    from autotune.probe.child.rows import take_rows

    schedule.clock.phase = Phase.EVAL
    rows = take_rows(wanted.eval_rows_dir, list(wanted.eval_rows), wanted.eval_pretruncate_tokens)
    trainer.evaluate(eval_dataset=rows)
    schedule.clock.phase = Phase.STEADY
    return True
