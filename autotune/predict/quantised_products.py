"""What bitsandbytes' products hold on CUDA, written in torch operations that a trace follows.

torch sees one operator for each product, and on the CPU another function altogether for 8-bit ones.
Sources: bitsandbytes 0.50, ``autograd/_functions.py`` and ``backends/cuda/ops.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from autotune.predict.follow import Follow
from autotune.predict.patching import replaced

#: Rows up to which every GPU multiplies with the packed 4-bit weight itself
#: (``_GEMM_4BIT_CUSTOM_FLOOR_M``). Up to 1536 some do: the copy is counted there, as most hold it.
_PACKED_ROWS = 4


@contextlib.contextmanager
def products_in_4bit(follow: Follow) -> Iterator[None]:
    """Let the forward pass hold the dequantised copy of the weight it multiplies with.

    Args:
        follow: the mode of the trace.
    """
    import bitsandbytes  # noqa: F401  (defines the operators)

    follow.inside = {**follow.inside, torch.ops.bitsandbytes.gemm_4bit.default: _gemm_4bit}
    yield


@contextlib.contextmanager
def products_in_8bit(follow: Follow) -> Iterator[None]:
    """Let 8-bit layers quantise their inputs and multiply integers, as they train on CUDA.

    Args:
        follow: the mode of the trace.
    """
    import bitsandbytes as bnb
    from bitsandbytes.autograd import _functions

    operators = torch.ops.bitsandbytes
    follow.inside = {
        **follow.inside,
        operators.int8_vectorwise_quant.default: _quantised_rows,
        operators.int8_scaled_mm.default: _scaled_product,
        operators.int8_mixed_scaled_mm.default: _mixed_product,
    }
    with (
        replaced(bnb, "matmul", _matmul),
        replaced(_functions.logger, "disabled", True),  # one line of a cast for every layer
    ):
        yield


def _matmul(
    a: Any, b: Any, out: Any = None, state: Any = None, threshold: float = 0.0, bias: Any = None
) -> Any:
    """Run ``bitsandbytes.matmul`` without its exception for CPUs."""
    from bitsandbytes.autograd._functions import MatMul8bitLt, MatmulLtState

    state = state or MatmulLtState()
    if threshold > 0.0:
        state.threshold = threshold
    return MatMul8bitLt.apply(a, b, out, bias, state)


def _quantised_rows(a: Any, threshold: float = 0.0) -> tuple[Any, Any, Any]:
    """Quantise by row. Which columns are outliers depends on numbers: none is taken to be."""
    scales = a.new_empty(a.numel() // a.shape[-1], dtype=torch.float32)
    rows = torch.empty_like(a, dtype=torch.int8)
    if threshold == 0.0:
        return rows, scales, None
    outliers = a.abs() >= threshold
    columns = outliers.any(dim=0)
    return rows, scales, columns.new_empty(0, dtype=torch.int64)


def _scaled_product(
    a: Any, b: Any, row_stats: Any, col_stats: Any, bias: Any = None, dtype: Any = None
) -> Any:
    """Multiply into int32, scale that to fp16, and copy it where another dtype is asked for."""
    operators = torch.ops.bitsandbytes
    sums = operators.int8_linear_matmul.default(a, b)
    scaled = operators.int8_mm_dequant.default(sums, row_stats, col_stats)
    if bias is not None and bias.dtype is not torch.float16:
        scaled.add_(bias)
    return scaled.to(dtype or torch.float16)


def _mixed_product(
    a: Any, ca: Any, cb: Any, sca: Any, scb: Any, outlier_cols: Any = None, bias: Any = None
) -> tuple[Any, Any]:
    return _scaled_product(ca, cb, sca, scb, bias, a.dtype), a.new_empty(0)


def _gemm_4bit(
    a: Any,
    b: Any,
    shape: Any,
    absmax: Any,
    blocksize: int,
    quant_type: str,
    bias: Any = None,
    absmax_8bit: Any = None,
    absmax_code: Any = None,
    absmax_offset: Any = None,
) -> Any:
    rows = a.reshape(-1, a.shape[-1])
    if rows.shape[0] <= _PACKED_ROWS and a.shape[-1] % blocksize == 0:
        return a.new_empty((*a.shape[:-1], shape[0]))
    if absmax_8bit is not None:
        scales = torch.empty_like(absmax_8bit, dtype=torch.float32)
        absmax = scales + absmax_offset
    dequantised = torch.ops.bitsandbytes.dequantize_4bit.default
    weight = dequantised(b, absmax, blocksize, quant_type, shape, a.dtype)
    # ``mm`` and not ``matmul``, which would be taken whole here and for no product
    turned = weight.t()
    product = torch.mm(rows, turned) if bias is None else torch.addmm(bias, rows, turned)
    return product.view(*a.shape[:-1], shape[0])
