"""Which live storage of torch is which block of the ledger.

A storage is noted when a tensor of it is first seen, and goes when the last one goes. Knows
nothing of operations.
"""

from __future__ import annotations

import weakref

import torch

from autotune.core.traced_step import Component
from autotune.predict.ledger import Ledger

#: Block of a storage that takes no memory of its own.
_NO_BLOCK = -1


class _Watched(weakref.ref):  # type: ignore[type-arg]
    """A reference to a storage that knows its block."""

    __slots__ = ("block", "key")
    block: int
    key: int


class Storages:
    """Follow storages into a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        """Know no storage yet.

        Args:
            ledger: where their blocks come and go.
        """
        self._ledger = ledger
        self._watched: dict[int, _Watched] = {}
        self._unwatch = self._gone

    def _gone(self, reference: _Watched) -> None:
        if self._watched.pop(reference.key, None) is not None and reference.block != _NO_BLOCK:
            self._ledger.go(reference.block)

    def _watch(self, storage: torch.UntypedStorage, block: int) -> None:
        reference = _Watched(storage, self._unwatch)
        reference.key, reference.block = storage._cdata, block
        self._watched[reference.key] = reference

    def _block(self, tensor: torch.Tensor) -> int:
        return self._watched[tensor.untyped_storage()._cdata].block

    def note(self, tensor: torch.Tensor, component: Component | None = None) -> None:
        """Note a tensor's storage, unless it is known.

        Args:
            tensor: any tensor, real or fake.
            component: what it is held for; None leaves that to the ledger.
        """
        storage = tensor.untyped_storage()
        if storage._cdata in self._watched:
            return
        if component is None and torch.is_grad_enabled() and self._ledger.recomputes:
            component = "activations"
        self._watch(storage, self._ledger.come(storage.nbytes(), component))

    def note_stand_in(self, tensor: torch.Tensor) -> None:
        """Note the storage of a fake stand-in, whose bytes are those of the real tensor."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._watched:
            self._watch(storage, _NO_BLOCK)

    def own(self, tensor: torch.Tensor, component: Component) -> None:
        """Say what a tensor's storage is held for; one that is not known yet is noted.

        Args:
            tensor: any tensor, real or fake.
            component: what it is held for.
        """
        self.note(tensor, component)
        self._ledger.tag(self._block(tensor), component)

    def on_host(self, tensor: torch.Tensor) -> None:
        """Say that a tensor's storage lies in host memory and takes none of the device's."""
        self._ledger.to_host(self._block(tensor))
