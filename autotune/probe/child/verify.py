"""The longer look at the chosen candidate: one save, one evaluation, and what it holds meanwhile.

DESIGN.md 5.9. Only observes; whether a series of peaks is safe is decided in classify.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.core.outcome import Phase
from autotune.probe.child.effective import reference_of
from autotune.probe.child.rows import take_rows
from autotune.probe.child.steps import Schedule
from autotune.probe.protocol import Verification

#: A checkpoint holds what is trained (with PEFT the adapter) and about two optimizer states of it.
_CHECKPOINT_COPIES = 3


def held_tensors(kind: Trainer, trainer: Any) -> list[Any]:
    """Return the tensors a trainer holds between updates.

    Parameters, scales of quantised ones and buffers of the policy and of the reference it is held
    against, and the optimizer's states.

    Args:
        kind: which trainer.
        trainer: the constructed trainer.
    """
    import torch

    from autotune.training.parameters import scales_of

    held: list[Any] = []
    for model in (trainer.model, reference_of(kind, trainer)):
        if model is not None:
            held += [*model.parameters(), *model.buffers()]
            held += [scale for parameter in model.parameters() for scale in scales_of(parameter)]
    for state in trainer.optimizer.state.values():
        held.extend(v for v in state.values() if isinstance(v, torch.Tensor))
    return held


def check_disk(parameters: dict[str, Any], folder: Path) -> None:
    """Stop before anything is run when a checkpoint would not fit on the disk.

    Args:
        parameters: sizes from `count_parameters`.
        folder: where the checkpoint goes; removed with the probe.

    Raises:
        OSError: there is too little disk for one checkpoint.
    """
    share = int(parameters["trainable"]) / max(1, int(parameters["total"]))
    need = int(_CHECKPOINT_COPIES * share * int(parameters["bytes"]))
    free = shutil.disk_usage(folder).free
    if free < need:
        raise OSError(28, f"No space left on device: a checkpoint needs {need} bytes, {free} free")


def eval_rows(kind: Trainer, wanted: Verification) -> Any | None:
    """Return the longest prepared rows evaluation uses, None when there is nothing to evaluate.

    Args:
        kind: which trainer.
        wanted: the verification.
    """
    if wanted.eval_rows_dir is None or not wanted.eval_rows:
        return None
    chosen = list(wanted.eval_rows)
    return take_rows(kind, wanted.eval_rows_dir, chosen, wanted.eval_pretruncate_tokens)


def evaluate(trainer: Any, rows: Any, schedule: Schedule) -> None:
    """Run the trainer's own evaluation.

    Args:
        trainer: a trainer that has trained.
        rows: prepared rows; rows that are already the trainer's own are taken as they are.
        schedule: told of the phase.
    """
    schedule.clock.phase = Phase.EVAL
    trainer.evaluate(eval_dataset=None if rows is trainer.eval_dataset else rows)
    schedule.clock.phase = Phase.STEADY
