"""Runs torch operations on shapes alone and follows every storage they make.

Floating-point tensors are fake: they have a shape, a dtype and a storage without bytes. Small
integer and boolean tensors stay real, so that masks, positions, labels and everything decided from
them are those of the batch and not guesses. Only where control flow asks a fake number for its
value is one made up (one, false). Knows nothing of trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from autotune.core.traced_step import WorkKind
from autotune.predict.hollow import hollow
from autotune.predict.ledger import Ledger
from autotune.predict.operations import WorkSums
from autotune.predict.recipes import (
    Output,
    Recipe,
    Spec,
    cost_of,
    flattened,
    for_meta,
    key_of,
    output_of,
    rebuilt,
    touched_bytes,
)
from autotune.predict.refusals import Untraceable
from autotune.predict.storages import Storages

#: Elements up to which integer and boolean results are computed for real: larger ones are masks,
#: whose values nobody asks for.
_REAL_ELEMENTS = 1 << 22

_DEVICE_OF = torch.ops.prim.device.default
_SCALAR_OF = torch.ops.aten._local_scalar_dense.default
_EQUAL = torch.ops.aten.equal.default
_DIRECT_NAMESPACES = ("profiler",)
#: operators that take boolean masks among their indices
_INDEXING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default,
)


#: Recipes by operator and shapes of arguments. They hold no tensor, so all runs share them.
_RECIPES: dict[Any, Recipe] = {}


class Follow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Make torch operations compute shapes, and write what they hold and do into a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        """Follow nothing yet.

        Args:
            ledger: where storages are noted.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.ledger = ledger
        self.storages = Storages(ledger)
        #: where the work of operations is added; None counts none
        self.work: WorkSums | None = None
        #: bytes a kernel holds for itself while it runs, by operator
        self.workspaces: dict[Any, Callable[[Sequence[Any]], int]] = {}
        #: kernels written in torch operations, by operator: what they do inside is followed too
        self.inside: dict[Any, Callable[..., Any]] = {}
        #: compute capability of the device whose step is asked for; None where it is not known
        self.capability: str | None = None
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Save torch's detour around its compiler, a tenth of the time: nothing is compiled."""
        return False

    def across(self, tensor: torch.Tensor, *, to_host: bool) -> torch.Tensor:
        """Copy a tensor over the link between device and host and return the copy.

        Args:
            tensor: a fake tensor.
            to_host: from the device to the host; else back.
        """
        output = Output(None, False, (tuple(tensor.shape), tensor.stride(), 0), tensor.dtype)
        copy = self._tensor(output, [])
        if to_host:
            self.storages.on_host(copy)
        self.count("host_copy", tensor.dtype, 0, touched_bytes(tensor))
        return copy

    def count(self, kind: WorkKind, dtype: Any, flops: int, moved_bytes: int) -> None:
        """Add work that no operation shows; arguments as for ``WorkSums.add``."""
        if self.work is not None:
            self.work.add(kind, dtype, flops, moved_bytes)

    # -- operations ---------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer one operation; the name and arguments are torch's."""
        kwargs = kwargs or {}
        if func is _DEVICE_OF:
            return args[0].fake_device if isinstance(args[0], FakeTensor) else args[0].device
        if func in self.inside:
            with self:
                return self.inside[func](*args, **kwargs)
        if func.namespace in _DIRECT_NAMESPACES:
            return func(*args, **kwargs)
        leaves, spec = flattened(args, kwargs)
        fake = any(isinstance(leaf, FakeTensor) for leaf in leaves)
        if not fake and _is_a_skeleton(leaves, kwargs):
            return func(*args, **kwargs)
        if not fake and (func is _SCALAR_OF or _decided_by_values(func)):
            return self._noted(func(*args, **kwargs))
        if func is _SCALAR_OF:
            return _made_up(args[0])
        if func is _EQUAL:
            return True  # asked of tied weights, which are one
        if func in _INDEXING:
            leaves, spec = self._without_masks(args, kwargs)
        recipe = self._recipe(func, leaves, spec)
        if func in self.workspaces:
            self.ledger.go(self.ledger.come(self.workspaces[func](leaves), "temporaries"))
        if self.work is not None and recipe.cost is not None:
            cost = recipe.cost
            self.work.add(cost.kind, cost.dtype, cost.flops, cost.moved_bytes)
        if not fake and recipe.integral:
            return self._noted(func(*args, **kwargs))
        return self._made(recipe, leaves)

    def _noted(self, out: Any) -> Any:
        for leaf in tree_flatten(out)[0]:
            if isinstance(leaf, torch.Tensor):
                self.storages.note(leaf)
        return out

    def _without_masks(self, args: tuple[Any, ...], kwargs: Any) -> tuple[list[Any], Spec]:
        """Put positions in the place of boolean masks, as torch's own kernels do."""
        tensor, indices, *rest = args
        found: list[Any] = []
        for index in indices:
            if isinstance(index, torch.Tensor) and index.dtype is torch.bool:
                if isinstance(index, FakeTensor):
                    where = [torch.empty(index.numel(), dtype=torch.long)] * index.dim()
                else:
                    where = list(index.nonzero().unbind(1))
                for positions in where[:1]:
                    self.storages.note(positions)
                found.extend(where)
            else:
                found.append(index)
        return flattened((tensor, found, *rest), kwargs)

    def _made(self, recipe: Recipe, leaves: list[Any]) -> Any:
        """Make the outputs of a recipe."""
        made = []
        for output in recipe.outputs:
            if not isinstance(output, Output):
                made.append(output)
            elif output.same:
                made.append(leaves[output.source])  # type: ignore[index]
            else:
                made.append(self._tensor(output, leaves))
        return made[0] if recipe.spec is None else tree_unflatten(made, recipe.spec)

    def _tensor(self, output: Output, leaves: list[Any]) -> torch.Tensor:
        assert output.geometry is not None
        if output.source is not None:
            base = self._faked(leaves[output.source]).untyped_storage()
            return hollow(self._fake, output.geometry, output.dtype, base)
        tensor = hollow(self._fake, output.geometry, output.dtype)
        self.storages.note(tensor)
        return tensor

    def _faked(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake stand-in of a real tensor; its bytes are those of the real one."""
        if isinstance(tensor, FakeTensor):
            return tensor
        stand_in = self._fake.from_tensor(tensor)
        self.storages.note_stand_in(stand_in)
        return stand_in

    # -- recipes ------------------------------------------------------------------------------

    def _recipe(self, func: Any, leaves: list[Any], spec: Spec) -> Recipe:
        key: Any = (func, spec, torch.get_default_dtype(), tuple([key_of(leaf) for leaf in leaves]))
        try:
            known = _RECIPES.get(key)
        except TypeError:  # an argument that cannot be compared is worked out every time
            return self._worked_out(func, leaves, spec)
        if known is None:
            known = _RECIPES[key] = self._worked_out(func, leaves, spec)
        return known

    def _worked_out(self, func: Any, leaves: list[Any], spec: Spec) -> Recipe:
        """Ask torch what a call returns, on stand-ins of its tensors."""
        faked = [self._faked(x) if isinstance(x, torch.Tensor) else x for x in leaves]
        asked = for_meta(func, faked)
        args, kwargs = rebuilt(asked, spec)
        try:
            with self._fake:
                out = func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            raise Untraceable(
                f"This candidate cannot be traced: what {func} returns depends on numbers, and "
                "fake tensors have none.",
                "Measure this candidate with a probe.",
            ) from error
        if asked is not faked:
            out = out.to(faked[0].dtype)
        flat, out_spec = ([out], None) if not isinstance(out, tuple | list) else tree_flatten(out)
        storages = {
            x.untyped_storage()._cdata: at
            for at, x in reversed(list(enumerate(faked)))
            if isinstance(x, torch.Tensor)
        }
        outputs = tuple(output_of(x, faked, storages) for x in flat)
        tensors = [x for x in flat if isinstance(x, torch.Tensor)]
        integral = bool(tensors) and all(
            not x.is_floating_point() and not x.is_complex() and x.numel() <= _REAL_ELEMENTS
            for x in tensors
        )
        return Recipe(outputs, out_spec, cost_of(func, faked, outputs), integral)


_META = torch.device("meta")


def _is_a_skeleton(leaves: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call makes or looks at tensors on ``meta``, as loaders do before they load."""
    asked = kwargs.get("device")
    if asked is not None:
        return bool(asked == _META)
    return any(isinstance(leaf, torch.Tensor) and leaf.device == _META for leaf in leaves)


def _decided_by_values(func: Any) -> bool:
    """Whether the shape or the Python value an operator returns depends on numbers."""
    return (
        torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags
    )


def _made_up(tensor: torch.Tensor) -> bool | float | int:
    if tensor.dtype is torch.bool:
        return False
    return 1.0 if tensor.is_floating_point() else 1
