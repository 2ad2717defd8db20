"""Tells steps that pay for something once per shape: a plan, a compilation, a specialised kernel.

On Hopper and Blackwell cuDNN's attention builds a plan for every exact shape, flex attention and
``torch.compile`` compile, Triton specialises its kernels. Such a step says nothing of the ones
after it, so readers of times leave it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = tuple[str, tuple[int, ...]]


def cost_something(options: Mapping[str, Any], device: str) -> bool:
    """Return whether a shape may take longer the first time. An uncompiled step on a CPU does not.

    Args:
        options: final TRL options.
        device: ``cpu`` or ``cuda:i``.
    """
    return device != "cpu" or bool(options.get("torch_compile"))


class FirstUses:
    """Remember the shapes a process has met."""

    def __init__(self) -> None:
        """Begin with none."""
        self._met: set[Shape] = set()

    def meet(self, shapes: frozenset[Shape]) -> bool:
        """Note what a step reads; returns whether any of it is met for the first time.

        Args:
            shapes: from `shapes_of`.
        """
        new = not shapes <= self._met
        self._met |= shapes
        return new


def shapes_of(inputs: Mapping[str, Any]) -> frozenset[Shape]:
    """Return the shapes of all token tensors of a collated batch; KTO's has two.

    Args:
        inputs: the collated batch.
    """
    return frozenset((k, tuple(v.shape)) for k, v in inputs.items() if k.endswith("input_ids"))
