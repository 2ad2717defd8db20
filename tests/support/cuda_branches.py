"""Which torch functions a trace meets, and what each does on the CPU and on CUDA.

Fake CUDA tensors need no GPU and no build for one, as long as no gradient is asked for: a recorded
call is repeated with them, and the operators below it are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

Operators = tuple[str, ...]


@dataclass(frozen=True)
class Like:
    """A tensor without numbers."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def on(self, device: str) -> torch.Tensor:
        """Return a tensor like it."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class Call:
    """A call of a torch function; its leaves are numbers and tensors without numbers."""

    function: Any
    name: str
    leaves: tuple[Any, ...]
    spec: Any
    autocast: torch.dtype | None


class Calls(TorchFunctionMode):
    """Note every different call of a torch function."""

    def __init__(self) -> None:
        self.seen: dict[Any, Call] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        leaves, spec = tree_flatten((args, kwargs or {}))
        held = tuple(_like(leaf) for leaf in leaves)
        floats = any(isinstance(x, Like) and x.dtype.is_floating_point for x in held)
        if floats and not any(x is None and y is not None for x, y in zip(held, leaves)):  # noqa: B905
            on = torch.is_autocast_enabled("cpu")
            autocast = torch.get_autocast_dtype("cpu") if on else None
            name = resolve_name(func) or str(func)
            with suppress(TypeError):
                key = (name, held, spec, autocast)
                self.seen.setdefault(key, Call(func, name, held, spec, autocast))
        return func(*args, **(kwargs or {}))


def _like(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        with torch._C.DisableTorchFunction():
            return Like(tuple(leaf.shape), leaf.stride(), leaf.dtype)
    plain = isinstance(leaf, bool | int | float | str | torch.dtype | type(None))
    return leaf if plain and leaf != "cpu" else None


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.prim.device.default:
            return out
        made = [str(x.dtype) for x in tree_flatten(out)[0] if isinstance(x, torch.Tensor)]
        self.seen.append(f"{func.name()} -> {' '.join(made)}")
        return out


@contextmanager
def _autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    # torch.autocast switches itself off where no GPU is; the kernels are there all the same
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, dtype is not None)
    torch.set_autocast_dtype(device, dtype or before[1])
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


def operators(call: Call, device: str) -> Operators | None:
    """Return the operators below a call, with the dtypes they make; None where it cannot run.

    Args:
        call: what was called.
        device: ``cpu`` or ``cuda``.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        leaves = [x.on(device) if isinstance(x, Like) else x for x in call.leaves]
        args, kwargs = tree_unflatten(leaves, call.spec)
        mode = _Operators()
        try:
            with _autocast(device, call.autocast), mode:
                call.function(*args, **kwargs)
        except Exception:  # noqa: BLE001  (a call may need more than its arguments)
            return None
    return tuple(mode.seen)
