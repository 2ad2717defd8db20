"""One training step followed without running it: bytes by component at the peak, and its work.

The seam between the tracer, which fills it, and the step-time model and the reports, which read it.
Holds no device: what a byte or an operation costs is decided elsewhere.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.core.job import Frozen

#: What device memory is held for at the peak, in the order it is drawn.
Component = Literal[
    "weights",
    "reference",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "inputs",
    "temporaries",
]
#: Kinds of work whose cost on a device follows different rates.
WorkKind = Literal["matmul", "attention", "elementwise", "reduction", "gather", "copy", "host_copy"]
#: When a step reaches its peak; ``precompute`` is the one-off pass over the reference.
StepPhase = Literal["load", "precompute", "forward", "backward", "optimizer_step"]


class Work(Frozen):
    """Operations of one kind and dtype, added up.

    Args:
        kind: what limits it; ``host_copy`` crosses the link between device and host.
        dtype: what it computes in, e.g. ``bfloat16``.
        flops: floating-point operations, multiply and add counted apart.
        moved_bytes: bytes read and written.
        launches: kernels that are started.
    """

    kind: WorkKind
    dtype: str
    flops: int = Field(ge=0)
    moved_bytes: int = Field(ge=0)
    launches: int = Field(ge=0)


class TracedPeak(Frozen):
    """What a candidate's peak is made of, kept with a result.

    Args:
        peak_bytes: most live bytes of the allocator, not corrected by any probe.
        phase: when that is.
        split: bytes by component at that moment; they add up to ``peak_bytes``.
        offloaded_bytes: most bytes kept in host memory instead of on the device.
    """

    peak_bytes: int = Field(ge=0)
    phase: StepPhase
    split: dict[Component, int]
    offloaded_bytes: int = Field(default=0, ge=0)


class TracedStep(Frozen):
    """What one candidate's step holds and does for one batch shape.

    Args:
        peak_bytes: most live bytes of the allocator over load, micro-steps and optimizer update.
        phase: when that is.
        phase_bytes: most live bytes of each phase; the largest is the peak.
        split: bytes by component at the peak; they add up to ``peak_bytes``.
        held_bytes: live bytes between two updates.
        offloaded_bytes: most bytes kept in host memory instead of on the device.
        micro_step: work of one micro-step, forward and backward.
        optimizer_step: work of one optimizer update, gradient clipping included.
        notes: rules and approximations that went into it, one sentence each.
    """

    peak_bytes: int = Field(ge=0)
    phase: StepPhase
    phase_bytes: dict[StepPhase, int] = {}
    split: dict[Component, int]
    held_bytes: int = Field(ge=0)
    offloaded_bytes: int = Field(default=0, ge=0)
    micro_step: tuple[Work, ...] = ()
    optimizer_step: tuple[Work, ...] = ()
    notes: tuple[str, ...] = ()
