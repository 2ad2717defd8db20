"""Lets the CPU's autocast keep to CUDA's list of functions that run in fp32."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: Functions CUDA's autocast runs in fp32 and the CPU's in whatever arrives: ``AT_FORALL_FP32`` in
#: aten/src/ATen/autocast_mode.h against the CPU's list in autocast_mode.cpp (torch 2.13).
FP32_FUNCTIONS = frozenset(
    {
        functional.cross_entropy,
        functional.layer_norm,
        functional.log_softmax,
        functional.nll_loss,
        functional.rms_norm,
        functional.softmax,
        functional.softplus,
        torch.cumsum,
        torch.exp,
        torch.log,
        torch.log_softmax,
        torch.norm,
        torch.pow,
        torch.reciprocal,
        torch.rsqrt,
        torch.softmax,
        torch.sum,
        torch.Tensor.__pow__,
        torch.Tensor.cumsum,
        torch.Tensor.exp,
        torch.Tensor.log,
        torch.Tensor.log_softmax,
        torch.Tensor.norm,
        torch.Tensor.pow,
        torch.Tensor.reciprocal,
        torch.Tensor.rsqrt,
        torch.Tensor.softmax,
        torch.Tensor.sum,
    }
)
_HALF = (torch.bfloat16, torch.float16)


class _CudaAutocast(TorchFunctionMode):
    """Cast what CUDA's autocast casts, wherever the CPU's autocast is on."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in FP32_FUNCTIONS and torch.is_autocast_enabled("cpu"):
            args = tuple(_in_fp32(value) for value in args)
            with torch.autocast("cpu", enabled=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _in_fp32(value: Any) -> Any:
    half = isinstance(value, torch.Tensor) and value.dtype in _HALF
    return value.float() if half else value


def cuda_autocast() -> TorchFunctionMode:
    """Return a context in which autocast keeps to CUDA's list."""
    return _CudaAutocast()
