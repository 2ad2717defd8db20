"""Tensors that are a shape, a dtype and a storage without bytes, made in no time.

They are torch's fake tensors in everything but how they are made: a trace makes hundreds of
thousands, none of which needs what the general constructor works out each time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_CPU = torch.device("cpu")
#: Shape, strides and offset into the storage.
Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


class Hollow(FakeTensor):
    """A fake tensor on the CPU; what torch sets on every fake one is here set once for all."""

    # the attributes of ``FakeTensor.__new__`` (torch/_subclasses/fake_tensor.py, torch 2.13; older
    # ones call the device by its second name only)
    _fake_device = _CPU
    fake_device = _CPU
    constant = None
    real_tensor = None
    pytype = None
    dispatch_keys = None
    nonzero_memo = None
    item_memo = None
    unique_memo = None
    unique_consecutive_memo = None
    nested_int_memo = None

    @staticmethod
    def __new__(cls: Any, mode: FakeTensorMode, elem: torch.Tensor) -> Any:
        made = torch.Tensor._make_subclass(
            cls, elem, False, dispatch_device=True, device_for_backend_keys=_CPU
        )
        made.fake_mode = mode
        return made

    def __init__(self, *_: Any) -> None:
        """Do nothing: all is done when it is made."""


def hollow(
    mode: FakeTensorMode, geometry: Geometry, dtype: Any, storage: Any | None = None
) -> torch.Tensor:
    """Return a tensor without bytes.

    Args:
        mode: the fake mode it belongs to.
        geometry: its shape, strides and offset.
        dtype: its torch dtype.
        storage: the storage it looks at; None gives it one of its own.
    """
    shape, stride, offset = geometry
    elem = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    if storage is not None:
        elem.set_(storage, offset, shape, stride)
    made: torch.Tensor = Hollow(mode, elem)
    return made
