"""Builds the model that is trained: from its config with random weights, or from real weights.

Follows what TRL's scripts do with ``model_name_or_path`` (fp32 unless a dtype is given), so that
memory and speed are those of the real run. Downloads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, EnvironmentUnable, nearest
from autotune.core.job import Trainer
from autotune.training.quantized import quantized_at_random


def init_kwargs(model_args: Any, training_args: Any) -> dict[str, Any]:
    """Return the model's init keywords exactly as ``trl sft`` and its kin assemble them.

    Args:
        model_args: TRL's ``ModelConfig``.
        training_args: the trainer's config.

    Source: ``trl/scripts/{sft,dpo,reward,kto}.py`` (TRL 1.16), ``main``.
    """
    kwargs: dict[str, Any] = {
        "trust_remote_code": training_args.trust_remote_code,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
    }
    kwargs.update(training_args.model_init_kwargs or {})
    return kwargs


def build_model(
    trainer: Trainer,
    model_dir: Path,
    *,
    weights: str,
    kwargs: dict[str, Any],
    quantization: Any | None,
    device: str,
) -> Any:
    """Build the model a trainer is given: a language model, for Reward one with a single score.

    Args:
        trainer: which trainer it is for.
        model_dir: local directory with ``config.json`` (and weights when ``weights`` is real).
        weights: ``random`` or ``real``.
        kwargs: init keywords from `init_kwargs`; ``dtype`` may also be a ``torch.dtype``.
        quantization: a ``BitsAndBytesConfig`` or None.
        device: the one torch device the whole model is on, whatever ``device_map`` asks for (a
            probe sees one); random weights are made there, so that host memory stays small.

    Raises:
        BadInput: the dtype is not one TRL accepts.
        EnvironmentUnable: real weights hold values that are not finite.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from trl.trainer.utils import create_model_from_path

    scores = trainer is Trainer.REWARD
    if weights == "real":
        extra: dict[str, Any] = (
            {} if quantization is None else {"quantization_config": quantization}
        )
        if scores:
            # trl/trainer/reward_trainer.py: the only output of the model is the reward
            extra |= {"architecture": AutoModelForSequenceClassification, "num_labels": 1}
        whole = {**kwargs, "device_map": None if device == "cpu" else {"": device}}
        model = create_model_from_path(str(model_dir), **whole, **extra)
        _require_finite(model, model_dir)
        return model
    config, unread = read_config(model_dir, kwargs)
    if unread:
        raise BadInput(
            f"model_init_kwargs has {', '.join(unread)}, which neither the loader nor the config "
            f"of this model ({config.model_type}) takes.",
            "Leave it out; TRL has options of its own for 4-bit and 8-bit weights (load_in_4bit).",
        )
    if scores:
        config.num_labels = 1
    dtype = _dtype(kwargs, config)
    passed = {k: v for k, v in kwargs.items() if k in _CONFIG_KWARGS and v is not None}
    auto = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    if quantization is not None:
        model = quantized_at_random(auto, config, dtype, passed, quantization, device)
    else:
        with torch.device(device):
            model = auto.from_config(config, dtype=dtype, **passed)
    if kwargs.get("use_kernels"):  # as ``from_pretrained`` does last
        model.set_use_kernels(True, kwargs.get("kernel_config"))
    # TRL reads the tokenizer from this path when none is given, and the model card names it.
    model.config._name_or_path = str(model_dir)
    return model


def _require_finite(model: Any, model_dir: Path) -> None:
    """Check that loaded weights can be trained from: one value that is not finite spoils a loss."""
    import torch

    # The largest magnitude of NaN is NaN, and the norm needs no second copy of a parameter.
    broken = [
        name
        for name, values in model.named_parameters()
        if values.is_floating_point()
        and values.numel()
        and not torch.isfinite(torch.linalg.vector_norm(values.detach(), ord=torch.inf))
    ]
    if broken:
        raise EnvironmentUnable(
            f"the weights in {model_dir} hold values that are not finite (NaN or infinite), in "
            f"{len(broken)} parameters; the first is {broken[0]}.",
            "Train from another checkpoint, or from one saved before the values were lost.",
        )


def read_config(model_dir: Path | str, kwargs: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Read a model's config as ``from_pretrained`` does, which lets keywords replace its values.

    Args:
        model_dir: local directory or hub id.
        kwargs: init keywords; ``revision`` and ``trust_remote_code`` among them count.

    Returns:
        The config, and the keywords nothing takes: the model's class would refuse them.
    """
    from transformers import AutoConfig

    own = {k: v for k, v in kwargs.items() if k not in _OF_THE_LOADER}
    where = {k: v for k, v in kwargs.items() if k in ("revision", "trust_remote_code")}
    config, unread = AutoConfig.from_pretrained(
        model_dir, return_unused_kwargs=True, **where, **own
    )
    return config, sorted(set(unread) & set(own))


def _dtype(kwargs: Mapping[str, Any], config: Any) -> Any:
    """Return the ``torch.dtype`` TRL's ``create_model_from_path`` loads weights in."""
    import torch

    wanted = kwargs.get("dtype") or kwargs.get("torch_dtype") or "auto"
    if wanted == "auto":
        return config.dtype or torch.float32
    if isinstance(wanted, torch.dtype):
        return wanted
    if wanted not in _DTYPES:
        raise BadInput(
            f"dtype is {wanted!r}, expected auto, {', '.join(_DTYPES)}"
            f"{nearest(str(wanted), list(_DTYPES))}."
        )
    return getattr(torch, wanted)


_DTYPES = ("bfloat16", "float16", "float32")
#: init keywords that `from_config` takes besides the config.
_CONFIG_KWARGS = ("attn_implementation", "trust_remote_code")
#: init keywords that steer how weights are found and loaded and are none of the config's
#: (transformers 5.24, ``PreTrainedModel.from_pretrained``).
_OF_THE_LOADER = frozenset(
    (
        *("attn_implementation", "experts_implementation", "trust_remote_code", "revision"),
        *("dtype", "torch_dtype", "device_map", "max_memory", "offload_folder", "offload_buffers"),
        *("quantization_config", "use_kernels", "kernel_config", "allow_all_kernels"),
        *("cache_dir", "force_download", "local_files_only", "proxies", "subfolder", "token"),
        *("code_revision", "variant", "use_safetensors", "weights_only", "key_mapping"),
        *("ignore_mismatched_sizes", "output_loading_info", "state_dict", "generation_config"),
        *("adapter_kwargs", "adapter_name", "gguf_file", "tqdm_class", "config"),
        *("distributed_config", "device_mesh", "tp_plan", "tp_size"),
        *("mirror", "_fast_init", "low_cpu_mem_usage", "from_tf", "from_flax"),
        "offload_state_dict",
    )
)
