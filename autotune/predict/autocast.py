"""Lets the CPU's autocast do what CUDA's does: other operators, and to some of them other things.

Which operators CUDA's autocast has a kernel for is asked of torch; what that kernel does is in the
tables here, after aten/src/ATen/autocast_mode.h (torch 2.13), whose ``AT_FORALL_FP32`` all others
belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from autotune.predict.patching import kernels, replaced

#: Operators that compute in fp32 where they are not told a dtype; no operand is copied for it
#: (``AT_FORALL_FP32_SET_OPT_DTYPE``).
FP32_RESULT = frozenset(
    (
        "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
        "linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum",
        "sum.dim_IntList",
    )
)  # fmt: skip
#: The same, by an overload that takes the dtype last (``AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE``)
#: -> that overload.
FP32_NORM = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}
#: Operators that compute in the widest of their operands' dtypes (``AT_FORALL_PROMOTE``).
PROMOTED = frozenset(
    (
        "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler",
        "index_put", "tensordot", "scatter_add",
    )
)  # fmt: skip
#: Operators that compute in autocast's dtype (``AT_FORALL_LOWER_PRECISION_FP``), as far as the
#: CPU's autocast does not do that too.
LOWERED = frozenset(
    (
        "_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose",
        "addmv", "addr", "einsum", "mv", "chain_matmul", "linalg_multi_dot",
        "_scaled_dot_product_flash_attention", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
        "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    )
)  # fmt: skip
#: Operators both lower, and one CUDA's autocast refuses.
ALIKE = frozenset(
    (
        "_convolution.deprecated", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
        "conv_transpose2d.input", "conv_transpose3d.input", "prelu", "addmm", "matmul", "mm",
        "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "scaled_dot_product_attention",
        "binary_cross_entropy",
    )
)  # fmt: skip
_WIDTH = {torch.bfloat16: 0, torch.float16: 0, torch.float32: 1}


def policies() -> dict[str, str]:
    """Return what CUDA's autocast does by operator, where the CPU's does otherwise.

    The answers are names: ``fp32`` (operands are cast), ``fp32 result``, ``promoted``, ``lowered``,
    ``untouched``.
    """
    cuda, cpu = (_registered(key) for key in ("AutocastCUDA", "AutocastCPU"))
    tables = {
        **dict.fromkeys(FP32_RESULT, "fp32 result"),
        **dict.fromkeys(FP32_NORM, "fp32 result"),
        **dict.fromkeys(PROMOTED, "promoted"),
        **dict.fromkeys(LOWERED, "lowered"),
    }
    found = {name: tables.get(name, "fp32") for name in cuda - ALIKE}
    return {**found, **dict.fromkeys(cpu - cuda, "untouched")}


def cuda_autocast() -> Any:
    """Return a context in which autocast on the CPU does what it does on CUDA."""
    return kernels("AutocastCPU", _kernels())


@contextmanager
def fp16_autocast() -> Iterator[None]:
    """Let accelerate run ``fp16`` under autocast, which it does on accelerators alone.

    Its loss scaling works in place on gradients and keeps two numbers: here it does nothing.
    Source: ``accelerate/accelerator.py``, ``Accelerator.__init__`` (accelerate 1.15).
    """
    from accelerate import Accelerator

    original: Any = Accelerator.__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.mixed_precision == "fp16" and not self.native_amp:
            self.native_amp = True
            self.scaler = torch.amp.GradScaler("cpu", enabled=False)

    with replaced(Accelerator, "__init__", made):
        yield


def _registered(key: str) -> frozenset[str]:
    found = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return frozenset(n.removeprefix("aten::") for n in found if n.startswith("aten::"))


@cache
def _kernels() -> dict[str, Callable[..., Any]]:
    made = {"fp32": _fp32, "fp32 result": _fp32_result, "promoted": _promoted, "lowered": _lowered}
    found = {}
    for name, policy in policies().items():
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        found[name] = _outside(made[policy](operator) if policy in made else operator)
    return found


def _outside(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel with autocast off, as torch runs its own."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return kernel(*args, **kwargs)

    return run


def _eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _WIDTH


def _cast(args: Any, dtype: Any) -> list[Any]:
    def leaf(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [leaf(v) for v in value]
        return value.to(dtype) if _eligible(value) else value

    return [leaf(value) for value in args]


def _fp32(operator: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: operator(*_cast(args, torch.float32), **kwargs)


def _lowered(operator: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return operator(*_cast(args, torch.get_autocast_dtype("cpu")), **kwargs)

    return run


def _promoted(operator: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = [v for a in args for v in (a if isinstance(a, list | tuple) else (a,))]
        widest = max((v.dtype for v in leaves if _eligible(v)), key=_WIDTH.__getitem__)
        lower = torch.get_autocast_dtype("cpu")
        return operator(*_cast(args, lower if _WIDTH[widest] == 0 else widest), **kwargs)

    return run


def _fp32_result(operator: Any) -> Callable[..., Any]:
    name = operator._schema.name.removeprefix("aten::")
    overload = operator._schema.overload_name
    with_dtype = FP32_NORM.get(f"{name}.{overload}")
    if with_dtype is not None:
        norm = getattr(getattr(torch.ops.aten, name), with_dtype)
        return lambda x, *args: norm(x, *args, dtype=torch.float32 if _eligible(x) else x.dtype)
    at, declared = next(
        (at, a) for at, a in enumerate(operator._schema.arguments) if a.name == "dtype"
    )

    def run(*args: Any, **kwargs: Any) -> Any:
        if not _eligible(args[0]):
            return operator(*args, **kwargs)
        given = kwargs.get("dtype") if declared.kwarg_only or len(args) <= at else args[at]
        if given is not None:
            return operator(*args, **kwargs)
        return operator(*args[:at], **{**kwargs, "dtype": torch.float32})

    return run
