"""Operators torch puts together from others, and puts together otherwise on CUDA.

Each function here is what CUDA makes of one operator; in a trace it stands in the place of what the
CPU makes of it, below autocast and above autograd. What CUDA's own operators return is asked of
torch's shape functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from autotune.predict.follow import Follow
from autotune.predict.patching import kernels

_ATEN = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)
#: Widest head of PyTorch's FlashAttention (``check_head_dim_size_flash``).
_FLASH_WIDTH = 256
#: Oldest compute capability of PyTorch's FlashAttention, and of bf16 in the efficient kernels
#: (``check_sm_version`` and ``less_than_sm80_mem_efficient_dtypes``, cuda/sdp_utils.cpp).
_FLASH_COMPUTE = (8, 0)
#: The efficient kernels read masks in rows of a multiple of this many elements
#: (``preprocess_mask``, transformers/attention.cpp).
_MASK_MULTIPLE = 16

Compute = tuple[int, int]


def dropout() -> Any:
    """Return a context in which dropout keeps a mask of one byte per element.

    Source: ``is_fused_kernel_acceptable`` in aten/src/ATen/native/Dropout.cpp.
    """
    return kernels("AutogradCPU", {"dropout": _dropout})


def half_softmax() -> Any:
    """Return a context in which softmax of fp16 gives fp32 without a copy of its operand.

    Source: ``softmax`` and ``log_softmax`` in aten/src/ATen/native/SoftMax.cpp.
    """
    by_name = {
        "softmax.int": partial(_softmax, _ATEN._softmax.default),
        "log_softmax.int": partial(_softmax, _ATEN._log_softmax.default),
    }
    return kernels("AutogradCPU", by_name)


def attention(capability: str | None) -> Any:
    """Return a context in which ``sdpa`` runs the kernels it would on a GPU.

    Args:
        capability: its compute capability, such as ``8.0``; None is taken as a recent one.
    """
    compute = _FLASH_COMPUTE
    if capability is not None:
        major, _, minor = capability.partition(".")
        compute = (int(major), int(minor or 0))
    kernel = partial(_attention, compute)
    return kernels("AutogradCPU", {"scaled_dot_product_attention": kernel})


def backward_workspaces(follow: Follow, held: Callable[[Any], int]) -> None:
    """Let a trace count what the backward kernels of attention hold beside their results.

    Args:
        follow: the mode of the trace.
        held: bytes they hold, from their arguments.
    """
    follow.workspaces[_ATEN._scaled_dot_product_flash_attention_backward.default] = held
    follow.workspaces[_ATEN._scaled_dot_product_efficient_attention_backward.default] = held


def _dropout(x: Any, p: float, train: bool) -> Any:
    if p == 0 or not train or x.numel() == 0:
        return x
    return _ATEN.native_dropout.default(x, p, train)[0]


def _softmax(operator: Any, x: Any, dim: int, dtype: Any = None) -> Any:
    if x.dtype is torch.float16 and dtype is torch.float32:
        return operator(x, dim, True)
    return operator(x if dtype is None else x.to(dtype), dim, False)


def _attention(
    compute: Compute,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Run ``scaled_dot_product_attention`` as its CUDA branch (transformers/attention.cpp)."""
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        added = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = added.masked_fill_(attn_mask.logical_not(), float("-inf"))
    if runs_flash(compute, query, key, value, attn_mask):
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if runs_efficient(compute, query, key, value):
        keeps = any(x.requires_grad for x in (query, key, value)) and torch.is_grad_enabled()
        bias = None if attn_mask is None else _bias(attn_mask, query, key)
        out, *_ = _ATEN._scaled_dot_product_efficient_attention.default(
            query, key, value, bias, keeps, dropout_p, is_causal, scale=scale
        )
        return out
    out, _ = _ATEN._scaled_dot_product_attention_math.default(
        query, key, value, attn_mask, dropout_p, is_causal, None,
        scale=scale, enable_gqa=enable_gqa,
    )  # fmt: skip
    return out


def runs_flash(compute: Compute, query: Any, key: Any, value: Any, mask: Any) -> bool:
    """Whether PyTorch runs its FlashAttention, or cuDNN's, which keeps the same."""
    same = query.shape[-1] == key.shape[-1] == value.shape[-1]
    fits = same and query.shape[-1] <= _FLASH_WIDTH and query.dim() == 4
    return compute >= _FLASH_COMPUTE and mask is None and query.dtype in _HALF and fits


def runs_efficient(compute: Compute, query: Any, key: Any, value: Any) -> bool:
    """Whether PyTorch runs its memory-efficient kernels, which share no key heads (torch 2.13)."""
    heads = query.dim() == 4 and query.shape[1] == key.shape[1] == value.shape[1]
    known = query.dtype in (torch.float16, torch.float32) or compute >= _FLASH_COMPUTE
    aligned = all(x.shape[-1] % (16 // x.element_size()) == 0 for x in (query, value))
    return heads and known and aligned


def _flash(q: Any, k: Any, v: Any, dropout_p: float, causal: bool, scale: float | None) -> Any:
    width = q.shape[-1]
    if width % 8:
        q, k, v = (torch.nn.functional.pad(x, (0, 8 - width % 8)) for x in (q, k, v))
    scale = width**-0.5 if scale is None else scale
    out, *_ = _ATEN._scaled_dot_product_flash_attention.default(
        q, k, v, dropout_p, causal, False, scale=scale
    )
    return out[..., :width] if width % 8 else out


def _bias(mask: Any, query: Any, key: Any) -> Any:
    columns = mask.shape[-1]
    if columns % _MASK_MULTIPLE:
        more = _MASK_MULTIPLE - columns % _MASK_MULTIPLE
        mask = torch.nn.functional.pad(mask, (0, more))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
