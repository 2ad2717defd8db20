"""What one operation costs: its kind of work, floating-point operations and bytes moved.

A literal table by operator name; an operator that is not listed streams through its operands and
is elementwise. Decides nothing about how long anything takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core.traced_step import Work, WorkKind

_MATMUL = ("mm", "addmm", "addmm_", "bmm", "baddbmm", "addbmm", "_grouped_mm", "linear", "addmv")
#: bitsandbytes' products with a packed weight: which argument that is, and its values per byte.
_PACKED = {
    "gemm_4bit": (1, 2),
    "gemv_4bit": (1, 2),
    "int8_linear_matmul": (1, 1),
    "int8_scaled_mm": (1, 1),
    "int8_mixed_scaled_mm": (2, 1),
}
_ATTENTION_FORWARD = "_scaled_dot_product_"
_REDUCTIONS = (
    "sum",
    "mean",
    "amax",
    "max",
    "argmax",
    "logsumexp",
    "_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "nll_loss_forward",
    "linalg_vector_norm",
    "_foreach_norm",
    "native_layer_norm",
    "native_layer_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "cumsum",
    "var_mean",
    "topk",
)
_GATHERS = (
    "embedding",
    "embedding_dense_backward",
    "gather",
    "scatter",
    "scatter_",
    "scatter_add",
    "scatter_add_",
    "index",
    "index_select",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "index_add",
    "index_add_",
    "index_copy_",
    "masked_scatter",
    "masked_select",
)
_COPIES = (
    "_to_copy",
    "copy_",
    "clone",
    "cat",
    "stack",
    "contiguous",
    "constant_pad_nd",
    "fill_",
    "zero_",
    "zeros",
    "zeros_like",
    "ones",
    "ones_like",
    "full",
    "full_like",
    "_foreach_copy_",
    "_foreach_zero_",
    "slice_backward",
    "select_backward",
)
_KINDS: dict[str, WorkKind] = {
    **dict.fromkeys((*_MATMUL, *_PACKED), "matmul"),
    **dict.fromkeys(_REDUCTIONS, "reduction"),
    **dict.fromkeys(_GATHERS, "gather"),
    **dict.fromkeys(_COPIES, "copy"),
}


def kind_of(name: str) -> WorkKind:
    """Return what limits an operator, by its name without namespace and overload."""
    if name.startswith(_ATTENTION_FORWARD):
        return "attention"
    return _KINDS.get(name, "elementwise")


def flops_of(name: str, kind: WorkKind, shapes: Sequence[Sequence[int]], causal: bool) -> int:
    """Return the floating-point operations of one call, multiply and add counted apart.

    Args:
        name: operator name without namespace and overload.
        kind: from `kind_of`.
        shapes: shapes of its tensor arguments, in order.
        causal: attention skips the upper half of its scores.

    Source: matrix products 2 m n k; attention as two such products forward and five backward
    (FlashAttention-2, arXiv 2307.08691, section 4.1), half of them where a mask is causal.
    """
    if name in _PACKED:
        weight, values = _PACKED[name]
        return 2 * _numel(shapes[0][:-1]) * values * _numel(shapes[weight])
    if kind == "matmul":
        # addmm and its kin name what is added first
        left, right = shapes[-2:] if "add" in name else shapes[:2]
        rows = 1
        for size in left[:-1]:
            rows *= size
        return 2 * rows * left[-1] * right[-1]
    if kind == "attention":
        backward = "backward" in name
        query, key = (shapes[1], shapes[2]) if backward else (shapes[0], shapes[1])
        product = 2 * query[0] * query[1] * query[2] * key[2] * query[3]
        return (5 if backward else 2) * product // (2 if causal else 1)
    if kind in ("copy", "gather"):
        return 0
    return max((_numel(shape) for shape in shapes), default=0)


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@dataclass
class Sum:
    """Work of one kind and dtype, while it is added up."""

    flops: int = 0
    moved_bytes: int = 0
    launches: int = 0


class WorkSums:
    """Add up operations by kind and dtype."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._sums: dict[tuple[WorkKind, Any], Sum] = {}

    def add(self, kind: WorkKind, dtype: Any, flops: int, moved_bytes: int) -> None:
        """Add one operation.

        Args:
            kind: what limits it.
            dtype: torch dtype it computes in.
            flops: its floating-point operations.
            moved_bytes: bytes it reads and writes.
        """
        found = self._sums.get((kind, dtype))
        if found is None:
            found = self._sums[kind, dtype] = Sum()
        found.flops += flops
        found.moved_bytes += moved_bytes
        found.launches += 1

    def work(self) -> tuple[Work, ...]:
        """Return the sums, largest flow of bytes first."""
        rows = [
            Work(
                kind=kind,
                dtype=str(dtype).removeprefix("torch."),
                flops=found.flops,
                moved_bytes=found.moved_bytes,
                launches=found.launches,
            )
            for (kind, dtype), found in self._sums.items()
        ]
        return tuple(sorted(rows, key=lambda w: (-w.moved_bytes, w.kind, w.dtype)))
