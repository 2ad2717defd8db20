"""Builds the model that is trained: from its config with random weights, or from real weights.

Follows what TRL's scripts do with ``model_name_or_path`` (fp32 unless a dtype is given), so that
memory and speed are those of the real run. Downloads nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput


def init_kwargs(model_args: Any, training_args: Any) -> dict[str, Any]:
    """Return the model's init keywords exactly as ``trl sft`` assembles them.

    Args:
        model_args: TRL's ``ModelConfig``.
        training_args: the trainer's config.

    Source: ``trl/scripts/sft.py`` (TRL 1.16), ``main``.
    """
    kwargs: dict[str, Any] = {
        "trust_remote_code": training_args.trust_remote_code,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    }
    kwargs.update(training_args.model_init_kwargs or {})
    return kwargs


def build_model(
    model_dir: Path, *, weights: str, kwargs: dict[str, Any], quantization: Any | None, device: str
) -> Any:
    """Build the causal language model a trainer is given.

    Args:
        model_dir: local directory with ``config.json`` (and weights when ``weights`` is real).
        weights: ``random`` or ``real``.
        kwargs: init keywords from `init_kwargs`.
        quantization: a ``BitsAndBytesConfig`` or None; needs real weights.
        device: torch device the random weights are made on, so that host memory stays small.

    Raises:
        BadInput: the dtype is not one TRL accepts.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl.trainer.utils import create_model_from_path

    if weights == "real" or quantization is not None:
        extra = {"quantization_config": quantization} if quantization is not None else {}
        return create_model_from_path(str(model_dir), **kwargs, **extra)
    dtype = kwargs.get("dtype") or "float32"
    config = AutoConfig.from_pretrained(
        model_dir, trust_remote_code=kwargs.get("trust_remote_code", False)
    )
    if dtype == "auto":
        dtype = config.dtype or torch.float32
    if isinstance(dtype, str):
        if dtype not in ("bfloat16", "float16", "float32"):
            raise BadInput(f"dtype is {dtype!r}, expected auto, bfloat16, float16 or float32.")
        dtype = getattr(torch, dtype)
    passed = {k: v for k, v in kwargs.items() if k in _CONFIG_KWARGS and v is not None}
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, **passed)
    # TRL reads the tokenizer from this path when none is given, and the model card names it.
    model.config._name_or_path = str(model_dir)
    return model


#: init keywords that `from_config` understands; the others only steer how weights are loaded.
_CONFIG_KWARGS = ("attn_implementation", "trust_remote_code")


def count_parameters(model: Any) -> dict[str, Any]:
    """Count parameters, each storage once (tied weights are one).

    Returns:
        ``total``, ``trainable`` (numbers of elements), ``bytes`` and ``trainable_dtype``.
    """
    seen: set[int] = set()
    total = trainable = size = 0
    dtypes: set[str] = set()
    for parameter in model.parameters():
        if parameter.data_ptr() in seen and parameter.numel() > 0:
            continue
        seen.add(parameter.data_ptr())
        total += parameter.numel()
        size += parameter.numel() * parameter.element_size()
        if parameter.requires_grad:
            trainable += parameter.numel()
            dtypes.add(str(parameter.dtype).removeprefix("torch."))
    return {
        "total": total,
        "trainable": trainable,
        "bytes": size,
        "trainable_dtype": "+".join(sorted(dtypes)),
    }
