"""Lets bitsandbytes hold its 4-bit and 8-bit weights in fake tensors.

Its modules, its storage and its own fake kernels are used as they are; only the classes of its
parameters, which wrap a real tensor, get a fake kin. Nothing happens where it is not installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


@contextlib.contextmanager
def quantised_weights() -> Iterator[None]:
    """Let ``Params4bit`` and ``Int8Params`` be made of fake tensors."""
    if find_spec("bitsandbytes") is None:
        yield
        return
    import bitsandbytes as bnb

    with contextlib.ExitStack() as stack:
        for kind in (bnb.nn.Params4bit, bnb.nn.Int8Params):
            stack.enter_context(_with_fake_kin(kind))
        yield


def cpu_kernels() -> dict[Any, Callable[..., Any]]:
    """Return the optimizer kernels that are written in torch operations on the CPU, by operator.

    They dequantise whole states, which the CUDA kernels do not (bitsandbytes/backends/cpu/ops.py).
    """
    if find_spec("bitsandbytes") is None:
        return {}
    from bitsandbytes.backends.cpu import ops

    names = {
        "optimizer_update_8bit_blockwise": "_optimizer_update_8bit_blockwise_cpu",
        "optimizer_update_32bit": "_optimizer_update_32bit_cpu",
    }
    return {
        getattr(torch.ops.bitsandbytes, operator).default: vars(ops)[kernel]
        for operator, kernel in names.items()
        if kernel in vars(ops)
    }


def constants(parameter: Any) -> Iterator[Any]:
    """Yield the tensors a quantised weight is read with: scales, codes, and scales of scales.

    Args:
        parameter: any parameter of a model.
    """
    states = [parameter, getattr(parameter, "quant_state", None)]
    states.append(getattr(states[1], "state2", None))
    for state in states:
        for name in ("absmax", "code", "offset", "SCB", "CB"):
            value = getattr(state, name, None)
            if isinstance(value, torch.Tensor):
                yield value


def left_out(model: Any) -> list[str]:
    """Say which weights of a quantised model are in no linear layer; nothing where all are."""
    parameters = list(model.parameters())
    if not any(next(constants(p), None) is not None for p in parameters):
        return []
    experts = {str(p.dtype) for p in parameters if p.dim() == 3 and p.is_floating_point()}
    names = " and ".join(sorted(name.removeprefix("torch.") for name in experts))
    return [f"Experts are no linear layers: their weights stay {names}."] if experts else []


@contextlib.contextmanager
def _with_fake_kin(kind: Any) -> Iterator[None]:
    original = kind.__new__
    kin = type(f"Fake{kind.__name__}", (FakeTensor, kind), {})

    def new(cls: Any, data: Any = None, requires_grad: bool = False, **settings: Any) -> Any:
        if not isinstance(data, FakeTensor):
            return original(cls, data, requires_grad, **settings)
        # what the original sets on the parameter, read off one that holds nothing
        pattern = original(kind, torch.empty(0, device="meta"), requires_grad, **settings)
        elem = torch.empty(0, dtype=data.dtype, device="meta")
        elem.set_(data.untyped_storage(), data.storage_offset(), data.shape, data.stride())
        made: Any = FakeTensor.__new__(kin, data.fake_mode, elem, data.fake_device)
        made.__dict__.update(pattern.__dict__)
        return made

    kind.__new__ = new
    try:
        yield
    finally:
        kind.__new__ = original
