"""FlashAttention's library without the library: what its kernels return, keep and hold.

transformers' own code around it (unpadding, document boundaries) runs as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from autotune.predict.follow import Follow
from autotune.predict.patching import replaced

#: Name under which transformers finds these kernels.
FLASH = "autotune_flash"
#: FlashAttention's backward kernels work on blocks of this many queries (csrc/flash_attn,
#: ``flash_bwd_launch_template.h``) and heads of a multiple of 32 wide.
_BLOCK, _HEAD = 128, 32


def workspace_bytes(leaves: Sequence[Any]) -> int:
    """Return what attention's backward kernel holds beside its results.

    An fp32 accumulator of the queries' gradient and one fp32 number per row of scores; where
    several query heads share a key head, gradients of keys and values by query head.

    Args:
        leaves: arguments of ``_scaled_dot_product_flash_attention_for_cpu_backward``.

    Source: ``mha_bwd`` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp.
    """
    _, query, key = (leaf for leaf in leaves[:3])
    batch, heads, length, width = query.shape
    return _held(batch, heads, length, width, key.shape[1], key.shape[2], query.element_size())


def _held(
    batch: int, heads: int, length: int, width: int, key_heads: int, keys: int, itemsize: int
) -> int:
    rows, wide = _up(length, _BLOCK), _up(width, _HEAD)
    held = batch * heads * rows * (wide + 1) * 4
    if key_heads != heads:
        held += 2 * batch * heads * keys * width * itemsize
    return held


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


@contextmanager
def flash_kernels(follow: Follow) -> Iterator[None]:
    """Let transformers find FlashAttention's functions under `FLASH`.

    Args:
        follow: the mode of the trace.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers import modeling_flash_attention_utils as utils
    from transformers.integrations.flash_attention import flash_attention_forward
    from transformers.masking_utils import flash_attention_mask

    AttentionInterface.register(FLASH, flash_attention_forward)
    AttentionMaskInterface.register(FLASH, flash_attention_mask)

    apply: Any = _Flash.apply

    def found(*_: Any, **__: Any) -> tuple[Any, ...]:
        return _dense, _varlen, None, utils._pad_input, utils._unpad_input

    def _dense(q: Any, k: Any, v: Any, causal: bool = False, **_: Any) -> Any:
        return apply(q, k, v, follow, q.shape[1], causal)

    def _varlen(
        q: Any, k: Any, v: Any, max_seqlen_q: int = 0, causal: bool = False, **_: Any
    ) -> Any:
        return apply(q, k, v, follow, int(max_seqlen_q), causal)

    with replaced(utils, "_lazy_imports", found), replaced(utils, "_loaded_implementation", None):
        yield


class _Flash(torch.autograd.Function):
    """Hold what the kernels hold; ``q`` is [batch, length, heads, width], or without batch."""

    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, follow: Follow, longest: int, causal: bool
    ) -> Any:
        out = torch.empty_like(q)
        rows = q.shape[:-2].numel() * q.shape[-2]
        scores = torch.empty(rows, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, scores)
        ctx.follow, ctx.longest, ctx.causal = follow, longest, causal
        _count(ctx, (q, k, v, out), 2)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v, out, _ = ctx.saved_tensors
        dims = q.shape if q.dim() == 4 else (1, *q.shape)
        batch, length, heads, width = dims
        size = _held(batch, heads, length, width, k.shape[-2], length, q.element_size())
        ledger = ctx.follow.ledger
        ledger.go(ledger.come(size, "temporaries"))
        found = tuple(torch.empty_like(t) for t in (q, k, v))
        _count(ctx, (q, k, v, out, grads[0], *found), 5)
        return *found, None, None, None


def _count(ctx: Any, tensors: Sequence[Any], products: int) -> None:
    """Count matrix products of queries against the keys of their own document."""
    q = tensors[0]
    tokens, heads, width = q.shape[:-2].numel(), q.shape[-2], q.shape[-1]
    flops = products * 2 * tokens * heads * width * ctx.longest // (2 if ctx.causal else 1)
    moved = sum(t.numel() * t.element_size() for t in tensors)
    ctx.follow.count("attention", q.dtype, flops, moved)
