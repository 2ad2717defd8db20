"""Builds TRL's own trainer around prepared rows; the one place where a trainer is constructed.

Used by the probe child (and by the tracer): whatever they see is what TRL really builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.training.arguments import build_arguments
from autotune.training.model import build_model, init_kwargs


def trainer_class(trainer: Trainer) -> Any:
    """Return TRL's trainer class, e.g. ``SFTTrainer``."""
    import trl

    names = {
        Trainer.SFT: "SFTTrainer",
        Trainer.DPO: "DPOTrainer",
        Trainer.REWARD: "RewardTrainer",
        Trainer.KTO: "KTOTrainer",
    }
    return getattr(trl, names[trainer])


def build_trainer(
    trainer: Trainer,
    *,
    options: Mapping[str, Any],
    model_dir: Path,
    weights: str,
    rows: Any,
    device: str,
    cls: Any | None = None,
) -> Any:
    """Construct the trainer for one candidate.

    Args:
        trainer: which trainer.
        options: final option values by upstream name, isolation included.
        model_dir: local model directory (config and tokenizer).
        weights: ``random`` or ``real``.
        rows: a ``datasets.Dataset`` with ``input_ids`` and ``labels``.
        device: torch device the model is made on.
        cls: a subclass of TRL's trainer to construct instead of it.

    Raises:
        BadInput: an option is unknown to the installed TRL.
    """
    from transformers import AutoTokenizer
    from trl import get_peft_config, get_quantization_config

    arguments = build_arguments(trainer, options)
    kwargs = init_kwargs(arguments.model, arguments.training)
    model = build_model(
        model_dir,
        weights=weights,
        kwargs=kwargs,
        quantization=get_quantization_config(arguments.model),
        device=device,
    )
    arguments.training.model_init_kwargs = None
    tokenizer = AutoTokenizer.from_pretrained(
        model_dir, trust_remote_code=arguments.training.trust_remote_code
    )
    return (cls or trainer_class(trainer))(
        model=model,
        args=arguments.training,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=get_peft_config(arguments.model),
    )
