"""Reads back what a constructed trainer really uses, whatever was asked for."""

from __future__ import annotations

from typing import Any

from autotune.core.job import Trainer
from autotune.training.trainer import REFERENCED


def flattens(trainer: Trainer, built: Any) -> bool:
    """Return whether the collator flattens a batch into one row; only SFT's does (TRL 1.16)."""
    return trainer is Trainer.SFT and bool(built.padding_free)


def wraps(trainer: Trainer, built: Any) -> bool:
    """Return whether packing joins rows without keeping their borders; only SFT's can."""
    if trainer is not Trainer.SFT or not built.args.packing:
        return False
    return bool(built.args.packing_strategy == "wrapped")


def reference_of(trainer: Trainer, built: Any) -> Any | None:
    """Return the reference model a trainer holds beside the policy, None when it holds none."""
    return built.ref_model if trainer in REFERENCED else None


def effective_values(trainer: Trainer, built: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the values in effect, by TRL's names where TRL has one.

    Checkpointing is only switched on when training starts, so ask after that.

    Args:
        trainer: which trainer.
        built: the constructed trainer.
        parameters: sizes and dtypes from `count_parameters`.
    """
    from transformers.training_args import OptimizerNames

    args = built.args
    found = {
        "padding_free": flattens(trainer, built),
        "pad_to_multiple_of": built.data_collator.pad_to_multiple_of,
        "max_length": args.max_length,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "per_device_eval_batch_size": args.per_device_eval_batch_size,
        "activation_offloading": bool(args.activation_offloading),
        "bf16": bool(args.bf16),
        "fp16": bool(args.fp16),
        "optim": OptimizerNames(args.optim).value,
        "use_liger_kernel": bool(args.use_liger_kernel),
        "dataloader_num_workers": args.dataloader_num_workers,
        "attn_implementation": built.model.config._attn_implementation,
        "dtype": parameters["dtype"],
        "trainable_dtype": parameters["trainable_dtype"],
        **_checkpointing(built.model),
    }
    if trainer is Trainer.SFT:
        found |= {"packing": bool(args.packing), "packing_strategy": str(args.packing_strategy)}
    if trainer in REFERENCED:
        found["reference_model"] = reference_of(trainer, built) is not None
        found["precompute_ref_log_probs"] = bool(args.precompute_ref_log_probs)
    return found


def _checkpointing(model: Any) -> dict[str, Any]:
    """Return how layers are recomputed, from the function they call, and whether they are."""
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            how = module._gradient_checkpointing_func.keywords
            return {
                "gradient_checkpointing": True,
                "use_reentrant": bool(how.get("use_reentrant", True)),
                "selective": "context_fn" in how,
            }
    return {"gradient_checkpointing": False}
