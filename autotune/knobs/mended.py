"""What of the user's own config means something else than it says, by options alone.

Where TRL would refuse it, the knobs write it the way it can train (`autotune.knobs.translate`);
this says so and changes nothing. What depends on rows is among the findings of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.job import Trainer


def mended(trainer: Trainer, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one sentence for everything in a config that is written otherwise, or does nothing.

    Args:
        trainer: which ``trl`` command.
        options: the user's TRL options, canonical names and final types.
    """
    found = []
    if trainer is Trainer.REWARD and options.get("use_peft"):
        task = options.get("lora_task_type", "CAUSAL_LM")
        if task != "SEQ_CLS":
            found.append(
                f"adapters of lora_task_type {task} leave the score head out or fail on a reward "
                "model: SEQ_CLS is measured and written into the config."
            )
    kwargs = options.get("model_init_kwargs") or {}
    if kwargs.get("torch_dtype") is not None and "dtype" not in kwargs:
        found.append(
            "model_init_kwargs.torch_dtype does nothing beside the dtype trl gives "
            f"({options.get('dtype', 'float32')}): set dtype."
        )
    return tuple(found)
