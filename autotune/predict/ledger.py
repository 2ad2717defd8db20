"""The book of storages of one traced run: which bytes lived when, and what for.

Knows nothing of torch: blocks come and go, marks say what was going on. Sizes are kept as they
were asked for; what an allocator makes of them is decided when the book is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np

from autotune.core.traced_step import Component, StepPhase

#: Components in a fixed order, so that a split is a vector.
COMPONENTS: tuple[Component, ...] = get_args(Component)
_INDEX = {name: at for at, name in enumerate(COMPONENTS)}


@dataclass(frozen=True)
class Segment:
    """Say what was going on between two marks.

    Args:
        phase: the phase of the step.
        part: where in the model: ``outside``, ``head``, or the number of a layer.
        batch: which micro-batch; -1 before the first.
        forward: which forward pass of it, counted from 1.
    """

    phase: StepPhase
    part: str | int = "outside"
    batch: int = -1
    forward: int = 0


@dataclass(frozen=True, eq=False)
class Height:
    """Hold the most live bytes of one segment.

    Args:
        segment: what was going on.
        split: float64[c], bytes by component at that moment, in the order of `COMPONENTS`.
    """

    segment: Segment
    split: np.ndarray[tuple[int], np.dtype[np.float64]]

    @property
    def total_bytes(self) -> float:
        """Live bytes at that moment."""
        return float(self.split.sum())


class Ledger:
    """Note blocks of memory as they come and go."""

    def __init__(self) -> None:
        """Start an empty book, while loading."""
        self._sizes: list[int] = []
        self._component: list[Component | None] = []
        self._live: set[int] = set()
        self._on_host: set[int] = set()
        #: block numbers as they come, and ``~number`` as they go
        self._events: list[int] = []
        self._marks: list[tuple[int, Segment]] = [(0, Segment("load"))]

    @property
    def segment(self) -> Segment:
        """What is going on now."""
        return self._marks[-1][1]

    @property
    def recomputes(self) -> bool:
        """Whether a forward pass that runs now is one that checkpointing repeats."""
        return self.segment.phase == "backward"

    def come(self, size_bytes: int, component: Component | None) -> int:
        """Note a new block and return its number.

        Args:
            size_bytes: what was asked for.
            component: what it is held for; None when that is not known yet: between the last
                layer and the loss that is logits, elsewhere the end of the forward pass tells.
        """
        if component is None and self.segment.part == "head":
            component = "logits"
        block = len(self._sizes)
        self._sizes.append(size_bytes)
        self._component.append(component)
        self._events.append(block)
        self._live.add(block)
        return block

    def to_host(self, block: int) -> None:
        """Say that a block lies in host memory, from its first moment on."""
        self._on_host.add(block)

    def go(self, block: int) -> None:
        """Note that a block was released."""
        self._live.discard(block)
        self._events.append(~block)

    def tag(self, block: int, component: Component) -> None:
        """Say what a block is held for, from its first moment on."""
        self._component[block] = component

    def tag_unknown(self, component: Component) -> None:
        """Say what every live block is held for of which that is not known yet."""
        for block in self._live:
            if self._component[block] is None:
                self._component[block] = component

    def mark(self, segment: Segment) -> None:
        """Begin another segment."""
        self._marks.append((len(self._events), segment))

    def heights(self, rounded: Callable[[int], int]) -> list[Height]:
        """Return the most live bytes of every segment, in order of time.

        Args:
            rounded: bytes the allocator takes for a request.
        """
        known = [_INDEX[c or "temporaries"] for c in self._component]
        sizes = [
            0 if block in self._on_host else rounded(size) for block, size in enumerate(self._sizes)
        ]
        found: list[Height] = []
        split = [0] * len(COMPONENTS)
        ends = [at for at, _ in self._marks[1:]] + [len(self._events)]
        start = 0
        for (_, segment), end in zip(self._marks, ends, strict=True):
            best = split.copy()
            total = best_total = sum(split)
            for event in self._events[start:end]:
                block = event if event >= 0 else ~event
                change = sizes[block] if event >= 0 else -sizes[block]
                split[known[block]] += change
                total += change
                if total > best_total:
                    best, best_total = split.copy(), total
            found.append(Height(segment, np.asarray(best, dtype=np.float64)))
            start = end
        return found

    def held_bytes(self, rounded: Callable[[int], int]) -> int:
        """Return the bytes of all blocks that are live now; argument as for `heights`."""
        return sum(rounded(self._sizes[block]) for block in self._live - self._on_host)

    def host_heights(self) -> dict[int, int]:
        """Return the most bytes in host memory during each micro-batch, by its number."""
        found: dict[int, int] = {}
        live = 0
        ends = [at for at, _ in self._marks[1:]] + [len(self._events)]
        start = 0
        for (_, segment), end in zip(self._marks, ends, strict=True):
            best = live
            for event in self._events[start:end]:
                block = event if event >= 0 else ~event
                if block in self._on_host:
                    live += self._sizes[block] if event >= 0 else -self._sizes[block]
                    best = max(best, live)
            found[segment.batch] = max(best, found.get(segment.batch, 0))
            start = end
        return found


def as_asked(size_bytes: int) -> int:
    """Return what torch's CPU allocator counts: what was asked for."""
    return size_bytes


def by_512(size_bytes: int) -> int:
    """Return what CUDA's caching allocator gives: multiples of 512 bytes (``kMinBlockSize``)."""
    return -(-size_bytes // 512) * 512
