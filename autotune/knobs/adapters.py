"""How adapters are written as options of TRL, and the name of one form of them.

Shared by the knobs that choose adapters and by the trial that finds out which ones fit a model
(`autotune.training.adapters`). Builds none.
"""

from __future__ import annotations

from typing import Any

from autotune.core.candidate import Value
from autotune.core.job import Trainer

#: Kinds that differ in what they can be built on; ``rslora`` is ``lora`` scaled otherwise.
KINDS = ("lora", "dora")
#: ``lora_task_type`` of a reward model; with TRL's default PEFT freezes the score or refuses it.
REWARD_TASK = "SEQ_CLS"


def adapter_options(kind: str, trainer: Trainer) -> dict[str, Any]:
    """Return the options of a kind of adapters.

    Args:
        kind: ``none``, ``lora``, ``dora`` or ``rslora``.
        trainer: which ``trl`` command.
    """
    if kind == "none":
        return {"use_peft": False}
    written = {"use_peft": True, "use_dora": kind == "dora", "use_rslora": kind == "rslora"}
    if trainer is Trainer.REWARD:
        return {**written, "lora_task_type": REWARD_TASK}
    return written


def target_options(targets: Value) -> dict[str, Any]:
    """Return the option of layers with adapters: null, ``all-linear`` or names joined by commas."""
    if targets is None or targets == "all-linear":
        return {"lora_target_modules": targets}
    return {"lora_target_modules": str(targets).split(",")}


def adapters_key(kind: str, targets: Value) -> str:
    """Return the name of one form of adapters.

    Args:
        kind: any but ``none``.
        targets: as in `target_options`.
    """
    layers = "the layers of PEFT's list" if targets is None else targets
    return f"{'dora' if kind == 'dora' else 'lora'} on {layers}"
