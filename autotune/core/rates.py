"""How fast a device does each kind of work: what the step-time model divides by.

Rates are what training reaches, not a peak from a data sheet: measured ones are so by themselves,
those of the catalogue by published efficiencies. Holds no device and measures nothing.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from autotune.core.job import Frozen
from autotune.core.time_model import FloatArray
from autotune.core.traced_step import WorkKind

#: The dtype under which a kind's rate is found when its own is not listed.
ANY = "any"


class Curve(Frozen):
    """Rate as a function of how much one operation does: small ones never reach full speed.

    Args:
        sizes: amount of work of one operation (flops or bytes), ascending, at least one.
        per_s: amount per second reached at each size, above zero.
    """

    sizes: tuple[float, ...] = Field(min_length=1)
    per_s: tuple[float, ...]

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if len(self.sizes) != len(self.per_s) or min(self.per_s) <= 0:
            raise ValueError("a curve needs one rate above zero per size")
        if list(self.sizes) != sorted(self.sizes):
            raise ValueError("the sizes of a curve ascend")
        return self

    def at(self, size: FloatArray) -> FloatArray:
        """Return the rates at sizes, log-linear between the known ones and flat beyond them.

        Args:
            size: float64[m], amount of work of one operation.
        """
        known = np.log(np.maximum(self.sizes, 1.0))
        rates: FloatArray = np.exp(
            np.interp(np.log(np.maximum(size, 1.0)), known, np.log(self.per_s))
        )
        return rates


class Rates(Frozen):
    """Everything the step-time model knows of a device.

    Args:
        device: its name.
        source: where the numbers come from, in words.
        measured: whether they were measured on the device itself.
        flops: floating-point operations per second, by kind of work and dtype.
        moved: bytes read and written per second, by kind of work and dtype.
        launch_seconds: what starting one operation costs the device.
        dispatch_seconds: what issuing one operation costs the host while the device works on
            earlier ones; 0 where nothing is asynchronous.
        selective_seconds: what the host spends more on an operation inside a layer that is
            checkpointed selectively: Python decides about each of them.
    """

    device: str
    source: str
    measured: bool
    flops: dict[WorkKind, dict[str, Curve]]
    moved: dict[WorkKind, dict[str, Curve]]
    launch_seconds: float = Field(ge=0)
    dispatch_seconds: float = Field(default=0.0, ge=0)
    selective_seconds: float = Field(default=0.0, ge=0)

    def flops_of(self, kind: WorkKind, dtype: str) -> Curve | None:
        """Return the arithmetic rate of a kind in a dtype; None when arithmetic does not limit."""
        return _pick(self.flops.get(kind), dtype)

    def moved_of(self, kind: WorkKind, dtype: str) -> Curve | None:
        """Return the memory rate of a kind in a dtype; None when the device does no such work."""
        return _pick(self.moved.get(kind), dtype)


def _pick(by_dtype: dict[str, Curve] | None, dtype: str) -> Curve | None:
    if not by_dtype:
        return None
    return by_dtype.get(dtype) or by_dtype.get(ANY) or next(iter(by_dtype.values()))
