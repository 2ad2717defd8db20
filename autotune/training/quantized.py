"""Quantises a model that has no weights at hand, through the loader that quantises real ones.

transformers chooses the modules, their classes and their storage; this only hands it tensors of
the right shapes. Downloads nothing and never holds the unquantised model in memory.
"""

from __future__ import annotations

from typing import Any

#: Spread of the made-up weights: that of most models' ``initializer_range``.
_SPREAD = 0.02


def quantized_at_random(
    auto: Any, config: Any, dtype: Any, kwargs: dict[str, Any], quantization: Any, device: str
) -> Any:
    """Return a model quantised as ``from_pretrained`` would quantise its real weights.

    Args:
        auto: ``AutoModelForCausalLM`` or another auto class.
        config: the model's config.
        dtype: ``torch.dtype`` of what is not quantised.
        kwargs: ``attn_implementation`` and ``trust_remote_code``, where they are given.
        quantization: a ``BitsAndBytesConfig``.
        device: torch device the model ends on.
    """
    import torch

    with torch.device("meta"):
        skeleton = auto.from_config(config, dtype=dtype, **kwargs)
    shapes = skeleton.state_dict()
    # One buffer stands for every matrix: the quantised copies are tensors of their own.
    buffer = torch.randn(max(t.numel() for t in shapes.values()), dtype=dtype) * _SPREAD
    made = {
        name: buffer[: like.numel()].view(like.shape)
        if like.dim() > 1
        else torch.ones_like(like, device="cpu")
        for name, like in shapes.items()
    }
    attention = {k: v for k, v in kwargs.items() if k == "attn_implementation"}
    model = type(skeleton).from_pretrained(
        None,
        config=config,
        state_dict=made,
        quantization_config=quantization,
        dtype=dtype,
        # as trl's create_model_from_path has it: no device map on a CPU
        device_map=None if device == "cpu" else {"": device},
        **attention,
    )
    for parameter in model.parameters():
        if parameter.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr():
            parameter.data = parameter.data.clone()
    return model
