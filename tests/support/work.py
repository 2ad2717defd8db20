"""Synthetic work and devices for tests of predictions; no torch, no tracer."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.rates import ANY, Curve, Rates
from autotune.core.traced_step import Work, WorkKind

GIGA = 1e9


def rates_of(
    *, flops: float = 100 * GIGA, moved: float = 10 * GIGA, launch: float = 0.0, host: float = 0.0
) -> Rates:
    """Return a device as fast for every kind and size of work."""
    kinds: tuple[WorkKind, ...] = ("matmul", "attention", "elementwise", "copy")
    return Rates(
        device="a device",
        source="made up",
        measured=True,
        flops={k: {ANY: Curve(sizes=(1.0,), per_s=(flops,))} for k in ("matmul", "attention")},
        moved={k: {ANY: Curve(sizes=(1.0,), per_s=(moved,))} for k in kinds},
        launch_seconds=launch,
        dispatch_seconds=host,
    )


def work(kind: WorkKind, flops: float = 0, moved: float = 0, launches: int = 1) -> Work:
    """Return operations in float32."""
    return Work(
        kind=kind,
        dtype="float32",
        flops=int(flops),
        moved_bytes=int(moved),
        launches=launches,
    )


def transformer_work(tokens: int, width: int) -> tuple[Work, ...]:
    """Return the work of a step that is linear in tokens and in tokens times width."""
    return (
        work("matmul", flops=3e6 * tokens + 5e5, moved=2e4 * tokens + 8e6, launches=120),
        work("attention", flops=4e3 * tokens * width, moved=1e3 * tokens, launches=12),
        work("elementwise", moved=9e4 * tokens + 1e6, launches=300),
    )


def seconds_of(parts: Mapping[str, float], factors: Mapping[str, float]) -> float:
    """Return what a device takes that is off by a factor per part."""
    return sum(factors.get(name, 1.0) * seconds for name, seconds in parts.items())
