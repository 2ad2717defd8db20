"""Extends what was followed on two shallow models to the depth of the real one.

Whatever a model of equal layers holds when it passes a given place, counted from its first layer
or from its last, grows by the same bytes with every layer more. So the highest point of every
place is extended along a line, and the highest of the results is the model's. Pure arithmetic.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.core.traced_step import Work
from autotune.predict.followed import Followed
from autotune.predict.ledger import Height, Segment


def by_place(followed: Followed, layers: int, period: int) -> Followed:
    """Name layers by their distance from the nearer end and keep the highest point of each place.

    Layers further than one period from both ends are left out: what is held there lies between.

    Args:
        followed: what was seen.
        layers: layers of the model it was seen on.
        period: after how many layers the pattern repeats.
    """
    highest: dict[Segment, Height] = {}
    for height in followed.heights:
        part = height.segment.part
        if isinstance(part, int) and part >= period:
            if part < layers - period:
                continue
            part = part - layers
        segment = replace(height.segment, part=part)
        known = highest.get(segment)
        if known is None or height.total_bytes > known.total_bytes:
            highest[segment] = Height(segment, height.split)
    return replace(followed, heights=tuple(highest.values()))


def extended(
    small: Followed, large: Followed, depths: tuple[int, int], layers: int
) -> Followed | None:
    """Return what would be seen on a deeper model; None when the two did not do the same.

    Args:
        small: what was seen on the shallower model, by place.
        large: what was seen on the deeper one, by place.
        depths: their layers.
        layers: layers of the model asked for.
    """
    low = {h.segment: h.split for h in small.heights}
    high = {h.segment: h.split for h in large.heights}
    if low.keys() != high.keys():
        return None
    share = (layers - depths[0]) / (depths[1] - depths[0])
    heights = tuple(
        Height(segment, np.maximum(split + (high[segment] - split) * share, 0.0))
        for segment, split in low.items()
    )
    micro = _work(small.micro_step, large.micro_step, share)
    update = _work(small.optimizer_step, large.optimizer_step, share)
    held = small.held_bytes + (large.held_bytes - small.held_bytes) * share
    hosted = small.offloaded_bytes + (large.offloaded_bytes - small.offloaded_bytes) * share
    return Followed(heights, held, hosted, micro, update, large.remarks)


def _work(small: tuple[Work, ...], large: tuple[Work, ...], share: float) -> tuple[Work, ...]:
    """Extend every sum along its line; a kind only one of them has starts from nothing."""
    low, high = ({(w.kind, w.dtype): w for w in sums} for sums in (small, large))

    def line(key: tuple[str, str], name: str) -> int:
        a = getattr(low[key], name) if key in low else 0
        b = getattr(high[key], name) if key in high else 0
        return max(0, round(a + (b - a) * share))

    return tuple(
        w.model_copy(
            update={
                name: line((w.kind, w.dtype), name) for name in ("flops", "moved_bytes", "launches")
            }
        )
        for w in {**low, **high}.values()
    )
