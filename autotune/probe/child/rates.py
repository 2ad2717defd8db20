"""Measures how fast this machine does each kind of work, in about two seconds.

Runs inside a measuring process: the parent never imports torch. Measures single operations; what
a step makes of them is modelled elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.core.environment import Device
from autotune.core.rates import ANY, Curve, Rates
from autotune.core.traced_step import WorkKind

#: Seconds spent on one point of a curve, after one call that warms up.
_POINT_S = 0.025
_LEAST_CALLS = 3
#: Operations of the chain whose cost per operation is the cost of starting one.
_CHAIN = 200
_MIB = 2**20
#: Sides of square products, heads x length of attention, bytes of one tensor: from what caches
#: hold to what they do not, within the two seconds on either kind of device.
_SIDES = {"cpu": (48, 192, 768), "cuda": (256, 2048, 8192)}
_LENGTHS = {"cpu": (64, 512), "cuda": (512, 4096)}
_TENSOR_BYTES = {
    "cpu": (_MIB // 16, _MIB, 16 * _MIB),
    "cuda": (_MIB, 16 * _MIB, 256 * _MIB),
}
_HOST_COPY_BYTES = 64 * _MIB

Run = Callable[[], Any]


def measure_rates(device: Device) -> Rates:
    """Measure the rates of a device.

    Args:
        device: one torch sees here.
    """
    import torch

    clock = _Clock(device.label)
    cuda = device.kind == "cuda"
    dtypes = ["float32", "bfloat16", *(["float16"] if cuda else [])]
    # pinned memory and whatever names no device belong to this one
    current = torch.cuda.device(device.label) if cuda else nullcontext()
    with current, torch.no_grad():
        launch = _launch_seconds(clock, device.label)
        matmul = {d: _matmul(clock, device, d, launch) for d in dtypes}
        attention = {d: _attention(clock, device, d, launch) for d in dtypes}
        moved: dict[WorkKind, dict[str, Curve]] = {
            kind: {d: _moved(clock, device, d, launch, kind) for d in dtypes}
            for kind in ("elementwise", "reduction", "gather", "copy")
        }
        if cuda:
            moved["host_copy"] = {ANY: _host_copy(clock, device)}
    # A fused kernel is limited by its arithmetic, a product also by reading its operands.
    moved["matmul"] = moved["copy"]
    dispatch = _dispatch_seconds(clock, device.label)
    return Rates(
        device=device.name,
        source="measured on this machine",
        measured=True,
        flops={"matmul": matmul, "attention": attention},
        moved=moved,
        launch_seconds=launch if cuda else dispatch,
        dispatch_seconds=dispatch if cuda else 0.0,
        selective_seconds=_selective_seconds(clock, device.label),
    )


class _Clock:
    """Time calls on a device: the lower quartile, since a busy machine only ever adds."""

    def __init__(self, label: str) -> None:
        self._label = label

    def seconds(self, run: Run) -> float:
        self._sync(run())
        times: list[float] = []
        until = time.perf_counter() + _POINT_S
        while len(times) < _LEAST_CALLS or time.perf_counter() < until:
            start = time.perf_counter()
            self._sync(run())
            times.append(time.perf_counter() - start)
        return float(np.quantile(times, 0.25))

    def _sync(self, _: Any) -> None:
        import torch

        if self._label != "cpu":
            torch.cuda.synchronize(self._label)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count operations that compute or copy; views cost the host little and are part of them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        returned = func._schema.returns
        views = bool(returned) and all(r.alias_info and not r.alias_info.is_write for r in returned)
        self.operations += not views
        return func(*args, **(kwargs or {}))


def _launch_seconds(clock: _Clock, label: str) -> float:
    """Return what one small operation costs in a queue of them."""
    import torch

    x = torch.ones(8, device=label)

    def chain() -> None:
        for _ in range(_CHAIN):
            x.add_(1.0)

    return clock.seconds(chain) / _CHAIN


def _dispatch_seconds(clock: _Clock, label: str) -> float:
    """Return what the host spends on one operation of a module, forward and backward.

    A tiny block under autocast, as a model's layers run: Python, autograd and casts included.
    """
    import torch

    block, x, kind = *_block(label), label.partition(":")[0]

    def both() -> None:
        with torch.enable_grad(), torch.autocast(kind, torch.bfloat16):
            block(x).sum().backward()

    counter = _Counter()
    with counter:
        both()
    return clock.seconds(both) / counter.operations


def _selective_seconds(clock: _Clock, label: str) -> float:
    """Return what an operation costs more inside a layer that is checkpointed selectively."""
    import torch
    from torch.utils.checkpoint import (
        CheckpointPolicy,
        checkpoint,
        create_selective_checkpoint_contexts,
    )

    block, x = _block(label)

    def policy(*_: Any, **__: Any) -> CheckpointPolicy:
        return CheckpointPolicy.PREFER_RECOMPUTE

    def run(**how: Any) -> float:
        def both() -> None:
            with torch.enable_grad():
                checkpoint(block, x, use_reentrant=False, **how).sum().backward()

        return clock.seconds(both)

    counter = _Counter()
    with counter, torch.enable_grad():
        block(x)
    more = run(context_fn=partial(create_selective_checkpoint_contexts, policy)) - run()
    # Once in the forward pass and once when it is repeated.
    return max(0.0, more) / (2 * counter.operations)


def _block(label: str) -> tuple[Any, Any]:
    """Return a tiny block of modules and its input."""
    import torch

    layers = [
        layer
        for _ in range(8)
        for layer in (torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.SiLU())
    ]
    return torch.nn.Sequential(*layers).to(label), torch.ones(1, 8, device=label)


def _matmul(clock: _Clock, device: Device, dtype: str, launch: float) -> Curve:
    import torch

    points = []
    for side in _SIDES[device.kind]:
        a = torch.randn(side, side, device=device.label).to(getattr(torch, dtype))
        b = torch.randn(side, side, device=device.label).to(getattr(torch, dtype))
        points.append((2.0 * side**3, clock.seconds(lambda a=a, b=b: a @ b)))  # type: ignore[misc]
    return _curve(points, launch)


def _attention(clock: _Clock, device: Device, dtype: str, launch: float) -> Curve:
    """Time causal attention forward and backward: two products and five, half of each."""
    import torch

    points = []
    heads, size = 8, 64
    for length in _LENGTHS[device.kind]:
        shape = (1, heads, length, size)
        q = torch.randn(shape, device=device.label).to(getattr(torch, dtype)).requires_grad_()
        grad = torch.ones_like(q)

        def both(q: Any = q, grad: Any = grad) -> None:
            with torch.enable_grad():
                attend = torch.nn.functional.scaled_dot_product_attention
                torch.autograd.backward(attend(q, q, q, is_causal=True), grad)

        flops = 7 * 2.0 * heads * length**2 * size / 2
        points.append((flops / 2, clock.seconds(both) / 2))
    return _curve(points, launch)


def _moved(clock: _Clock, device: Device, dtype: str, launch: float, kind: WorkKind) -> Curve:
    import torch

    points = []
    wide = 1024
    for size in _TENSOR_BYTES[device.kind]:
        x = torch.randn(size // 4 // wide, wide, device=device.label).to(getattr(torch, dtype))
        of_one = float(x.numel() * x.element_size())
        other = torch.float32 if dtype != "float32" else torch.bfloat16
        order = torch.randperm(x.shape[0], device=device.label)
        runs: dict[str, tuple[Run, float]] = {
            # A product and an activation: three and two tensors pass.
            "elementwise": (lambda x=x: torch.nn.functional.silu(x * x), 5.0),  # type: ignore[misc]
            "reduction": (lambda x=x: x.sum(dim=-1), 1.0),  # type: ignore[misc]
            "gather": (lambda x=x, o=order: x.index_select(0, o), 2.0),  # type: ignore[misc]
            "copy": (lambda x=x, o=other: x.to(o), 1.0 + other.itemsize / x.element_size()),  # type: ignore[misc]
        }
        run, tensors = runs[kind]
        operations = 2 if kind == "elementwise" else 1
        points.append((tensors * of_one / operations, clock.seconds(run) / operations))
    return _curve(points, launch)


def _host_copy(clock: _Clock, device: Device) -> Curve:
    import torch

    host = torch.empty(_HOST_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    seconds = clock.seconds(lambda: host.to(device.label, non_blocking=True))
    return Curve(sizes=(1.0,), per_s=(_HOST_COPY_BYTES / seconds,))


def _curve(points: list[tuple[float, float]], launch: float) -> Curve:
    """Return the rate by size; what starting costs is told apart from what the work takes."""
    taken = [(size, max(seconds - launch, 0.1 * seconds)) for size, seconds in points]
    return Curve(sizes=tuple(size for size, _ in taken), per_s=tuple(size / s for size, s in taken))
