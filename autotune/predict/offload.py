"""TRL's activation offloading without streams: what leaves the device, and for how long.

Stands for ``OffloadActivations`` (trl/models/activation_offloading.py, TRL 1.16), which tells
storages apart by addresses fake tensors do not have. TRL's own hooks around the head stay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from autotune.predict.follow import Follow
from autotune.predict.patching import replaced

#: TRL's defaults: smaller tensors stay; so many are still on the device while they are copied.
_SMALLEST_BYTES = 1024
_STASH = 5


class _Offload(saved_tensors_hooks):
    """Keep saved activations in host memory between forward and backward."""

    def __init__(self, follow: Follow) -> None:
        super().__init__(self._pack, self._unpack)
        self._follow = follow
        self._weights: set[int] = set()
        self._known: set[int] = set()
        self._leaving: OrderedDict[int, torch.Tensor] = OrderedDict()
        self._arrived: dict[Any, list[torch.Tensor]] = {}
        self._count = 0

    def update_model_params(self, model: Any) -> None:
        """Remember the weights, which stay."""
        self._weights = {p.untyped_storage()._cdata for p in model.parameters()}

    def __enter__(self) -> Any:
        self._known.clear()
        self._leaving.clear()
        self._arrived.clear()
        return super().__enter__()

    def __exit__(self, *args: Any) -> Any:
        self._leaving.clear()
        self._arrived.clear()
        return super().__exit__(*args)

    def _pack(self, tensor: torch.Tensor) -> Any:
        key = tensor.untyped_storage()._cdata
        small = tensor.numel() * tensor.element_size() < _SMALLEST_BYTES
        if small or key in self._weights or key in self._known or not tensor.is_floating_point():
            return tensor, None
        self._count += 1
        self._known.add(key)
        self._leaving[self._count] = tensor
        while len(self._leaving) > _STASH:
            _, gone = self._leaving.popitem(last=False)
            self._known.discard(gone.untyped_storage()._cdata)
        return self._follow.across(tensor, to_host=True), self._count

    def _unpack(self, packed: Any) -> torch.Tensor:
        tensor: torch.Tensor = packed[0]
        number: int | None = packed[1]
        if number is None:
            return tensor
        if number in self._leaving:
            return self._leaving[number]
        back = self._follow.across(tensor, to_host=False)
        node = torch._C._current_autograd_node()
        # what came for earlier nodes is let go when the next one has run
        for earlier in [n for n in self._arrived if n is not node][:-1]:
            del self._arrived[earlier]
        self._arrived.setdefault(node, []).append(back)
        self._leaving.clear()
        return back


@contextmanager
def offloading(follow: Follow) -> Iterator[None]:
    """Let TRL offload activations.

    Args:
        follow: the mode of the trace.
    """
    from trl.models import activation_offloading

    def made(**_: Any) -> _Offload:
        return _Offload(follow)

    with replaced(activation_offloading, "OffloadActivations", made):
        yield
