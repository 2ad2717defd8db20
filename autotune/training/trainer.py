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
from autotune.training.prepared import trainer_class

#: Trainers that hold the policy against a reference.
REFERENCED = (Trainer.DPO, Trainer.KTO)


def build_trainer(
    trainer: Trainer,
    *,
    options: Mapping[str, Any],
    model_dir: Path,
    weights: str,
    rows: Any,
    device: str,
    cls: Any | None = None,
    tokenizer: Any | None = None,
) -> Any:
    """Construct the trainer for one candidate.

    The one-off pass over the reference (``precompute_ref_log_probs``) is not run, see
    `autotune.training.prepared.precomputed`.

    Args:
        trainer: which trainer.
        options: final option values by upstream name, isolation included.
        model_dir: local model directory (config and tokenizer).
        weights: ``random`` or ``real``.
        rows: a ``datasets.Dataset`` with the columns the trainer's preparation leaves
            (`autotune.dataset.trl_rows.PREPARED_COLUMNS`).
        device: torch device the model is made on.
        cls: a subclass of `trainer_class` to construct instead of it.
        tokenizer: used instead of the one in ``model_dir``.

    Raises:
        BadInput: an option is unknown to the installed TRL.
    """
    from transformers import AutoTokenizer
    from trl import get_peft_config, get_quantization_config

    arguments = build_arguments(trainer, options)
    kwargs = init_kwargs(arguments.model, arguments.training)
    quantization = get_quantization_config(arguments.model)
    how: dict[str, Any] = {"weights": weights, "quantization": quantization, "device": device}
    model = build_model(trainer, model_dir, kwargs=kwargs, **how)
    peft = get_peft_config(arguments.model)
    extra: dict[str, Any] = {}
    if trainer in REFERENCED and weights == "random" and holds_reference(arguments.training, peft):
        # TRL would load it from the model's path, where there may be no weights.
        alike = {**kwargs, "dtype": model.dtype}
        extra["ref_model"] = build_model(trainer, model_dir, kwargs=alike, **how)
        extra["ref_model"].load_state_dict(model.state_dict())
    arguments.training.model_init_kwargs = None
    if tokenizer is None:
        tokenizer = AutoTokenizer.from_pretrained(
            model_dir, trust_remote_code=arguments.training.trust_remote_code
        )
    return (cls or trainer_class(trainer))(
        model=model,
        args=arguments.training,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=peft,
        **extra,
    )


def holds_reference(training_args: Any, peft: Any | None) -> bool:
    """Return whether a DPO or KTO trainer keeps a second model, the reference, in memory.

    With PEFT the policy without its adapters is the reference, and with precomputed
    log-probabilities none is needed while training (trl/trainer/dpo_trainer.py, ``__init__``).

    Args:
        training_args: ``DPOConfig`` or ``KTOConfig``.
        peft: the PEFT config, None without PEFT.
    """
    return peft is None and not training_args.precompute_ref_log_probs
