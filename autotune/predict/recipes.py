"""What an operation returns and costs for arguments of given shapes, noted once and used again.

Describes outputs by shape and by which argument they are or look at; makes no tensor that lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autotune.core.traced_step import WorkKind
from autotune.predict.operations import flops_of, kind_of

_GROUPED = torch.ops.aten._grouped_mm.default

#: How leaves were put together: how many positional arguments, sizes of lists, keywords.
Spec = tuple[int, tuple[int, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Cost:
    """What one call is counted as."""

    kind: WorkKind
    dtype: Any
    flops: int
    moved_bytes: int


@dataclass(frozen=True)
class Output:
    """How to make one output without asking torch again.

    Args:
        source: number of the argument it is (``same``) or a view of; None for a new tensor.
        same: it is that argument itself.
        geometry: shape, stride and offset; None when ``same``.
        dtype: its dtype.
    """

    source: int | None
    same: bool
    geometry: tuple[tuple[int, ...], tuple[int, ...], int] | None
    dtype: Any


@dataclass(frozen=True)
class Recipe:
    """What a call with given shapes returns and costs; outputs that are no tensors are kept."""

    outputs: tuple[Any, ...]
    spec: Any
    cost: Cost | None
    integral: bool


def flattened(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], Spec]:
    """Return the arguments of an operator one by one, and how to put them together again.

    Operators take lists of tensors or numbers and nothing nested deeper.
    """
    leaves: list[Any] = []
    sizes: list[int] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, list | tuple):
            leaves.extend(value)
            sizes.append(len(value))
        else:
            leaves.append(value)
            sizes.append(-1)
    return leaves, (len(args), tuple(sizes), tuple(kwargs))


def rebuilt(leaves: Sequence[Any], spec: Spec) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments as `flattened` found them."""
    count, sizes, names = spec
    values: list[Any] = []
    at = 0
    for size in sizes:
        if size < 0:
            values.append(leaves[at])
            at += 1
        else:
            values.append(list(leaves[at : at + size]))
            at += size
    return values[:count], dict(zip(names, values[count:], strict=True))


def for_meta(func: Any, leaves: list[Any]) -> list[Any]:
    """Return arguments torch's own shape function takes.

    That of grouped products wants bf16, while the CPU's kernel takes fp32 too (torch 2.13,
    ``_meta_grouped_mm_common``).
    """
    if func is not _GROUPED or leaves[0].dtype is torch.bfloat16:
        return leaves
    return [
        x.to(torch.bfloat16) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in leaves
    ]


def key_of(leaf: Any) -> Any:
    """Return what a recipe depends on of one argument."""
    if isinstance(leaf, torch.Tensor):
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.storage_offset())
    # numbers steer no shape, and those of an optimizer change with every step
    return float if type(leaf) is float else (leaf, type(leaf))


def output_of(value: Any, faked: list[Any], storages: dict[int, int]) -> Any:
    """Describe one value a call returned."""
    if not isinstance(value, torch.Tensor):
        return value
    for at, argument in enumerate(faked):
        if value is argument:
            return Output(at, True, None, value.dtype)
    geometry = (tuple(value.shape), value.stride(), int(value.storage_offset()))
    return Output(storages.get(value.untyped_storage()._cdata), False, geometry, value.dtype)


def cost_of(func: Any, faked: list[Any], outputs: tuple[Any, ...]) -> Cost | None:
    """Return what a call is counted as; None when it only looks at its arguments otherwise."""
    made = [o for o in outputs if isinstance(o, Output)]
    if made and all(o.source is not None and not o.same for o in made):
        return None
    tensors = [x for x in faked if isinstance(x, torch.Tensor)]
    name = func._schema.name.partition("::")[2]
    kind = kind_of(name)
    sizes = [touched_bytes(x) for x in tensors]
    if kind == "gather" and len(sizes) > 1 and not name.endswith("_backward"):
        sizes.remove(max(sizes))  # only the rows that are asked for are read
    written = sum(_bytes_of(o) for o in made if o.source is None)
    written += sum(touched_bytes(faked[o.source]) for o in made if o.same and o.source is not None)
    floating = [x.dtype for x in tensors if x.is_floating_point()]
    dtypes = [*floating, *[o.dtype for o in made], *[x.dtype for x in tensors]]
    if not dtypes:
        return None
    causal = kind == "attention" and _is_causal(func, faked)
    flops = flops_of(name, kind, [tuple(x.shape) for x in tensors], causal)
    return Cost(kind, dtypes[0], flops, sum(sizes) + written)


def _is_causal(func: Any, leaves: list[Any]) -> bool:
    """Whether attention is told to be causal; its operators take no lists."""
    names = [argument.name for argument in func._schema.arguments]
    return any(name == "is_causal" and leaf is True for name, leaf in zip(names, leaves))  # noqa: B905


def touched_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes a tensor reads: what is expanded is read once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def _bytes_of(output: Output) -> int:
    assert output.geometry is not None
    elements = 1
    for size in output.geometry[0]:
        elements *= size
    return elements * int(output.dtype.itemsize)
