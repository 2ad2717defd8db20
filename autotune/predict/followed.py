"""What was seen of one micro-batch, and the traced step it makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.core.traced_step import StepPhase, TracedStep, Work
from autotune.predict.ledger import COMPONENTS, Height


@dataclass(frozen=True)
class Followed:
    """Hold what one micro-batch and the update after it held and did.

    Args:
        heights: the most live bytes of every segment, loading and the optimizer update included.
        held_bytes: live bytes between two updates.
        offloaded_bytes: most bytes in host memory during the micro-step.
        micro_step: work of the micro-step.
        optimizer_step: work of the update.
        remarks: what was found on the way, one sentence each.
    """

    heights: tuple[Height, ...]
    held_bytes: float
    offloaded_bytes: float
    micro_step: tuple[Work, ...]
    optimizer_step: tuple[Work, ...]
    remarks: tuple[str, ...] = ()


def step_of(followed: Followed, notes: tuple[str, ...] = ()) -> TracedStep:
    """Return the traced step: the highest of its segments.

    Args:
        followed: what was seen.
        notes: rules and approximations that went into it.
    """
    highest = max(followed.heights, key=lambda height: height.total_bytes)
    sizes = np.rint(highest.split).astype(int)
    phases: dict[StepPhase, int] = {}
    for height in followed.heights:
        phase = height.segment.phase
        phases[phase] = max(phases.get(phase, 0), round(height.total_bytes))
    return TracedStep(
        peak_bytes=int(sizes.sum()),
        phase=highest.segment.phase,
        phase_bytes=phases,
        split={name: int(size) for name, size in zip(COMPONENTS, sizes, strict=True)},
        held_bytes=round(followed.held_bytes),
        offloaded_bytes=round(followed.offloaded_bytes),
        micro_step=followed.micro_step,
        optimizer_step=followed.optimizer_step,
        notes=(*followed.remarks, *notes),
    )
