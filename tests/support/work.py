"""Synthetic work and devices for tests of predictions; no torch, no tracer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.core.rates import ANY, Curve, Rates
from autotune.core.traced_step import TracedStep, Work, WorkKind
from autotune.predict.request import Documents, Pair, Row, TraceRequest
from autotune.probe.protocol import InspectSpec, Reply, Trace, TraceSpec
from autotune.study.foresight import Tell, Tick

GIGA = 1e9
MIB = 2**20


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


def traced_of(request: TraceRequest) -> TracedStep:
    """Return a made-up step: weights, and activations and logits in proportion to the tokens."""
    tokens, width = shape_of_request(request)
    kept = 1 if request.options.get("gradient_checkpointing", True) else 4
    split = {"weights": 100 * MIB, "activations": kept * tokens * 2**14, "logits": tokens * 2**12}
    return TracedStep(
        peak_bytes=sum(split.values()),
        phase="backward",
        split=split,
        held_bytes=100 * MIB,
        micro_step=transformer_work(tokens, width),
        optimizer_step=(work("elementwise", moved=4e8, launches=10),),
    )


def shape_of_request(request: TraceRequest) -> tuple[int, int]:
    """Return computed tokens and width of a request's micro-batch."""
    sizes = [_width(row) for row in request.rows]
    if request.options.get("padding_free") or request.options.get("packing"):
        return sum(sizes), sum(sizes)
    sides = 2 if isinstance(request.rows[0], Pair) else 1
    return sides * len(sizes) * max(sizes), max(sizes)


def _width(row: Row) -> int:
    if isinstance(row, Documents):
        return sum(row.tokens)
    if isinstance(row, Pair):
        return row.prompt + max(row.chosen, row.rejected)
    return row.prompt + row.completion


class FakeTracing:
    """Answer requests to trace with made-up steps."""

    def __init__(
        self,
        refuse: Callable[[TraceRequest], bool] = lambda _: False,
        answer: Callable[[TraceRequest], TracedStep] = traced_of,
    ) -> None:
        """Take what is refused and how the rest is answered."""
        self._refuse, self._answer = refuse, answer
        self.requests: list[TraceRequest] = []

    def trace(
        self, spec: TraceSpec, *, deadline_s: float, tick: Tick, tell: Tell
    ) -> tuple[Trace, ...]:
        """Answer every request."""
        self.requests = [TraceRequest.model_validate(r) for r in spec.requests]
        return tuple(
            Trace(refusal="made up") if self._refuse(r) else Trace(step=self._answer(r))
            for r in self.requests
        )

    def inspect(self, spec: InspectSpec, *, deadline_s: float) -> Reply:
        """Answer with made-up rates."""
        return Reply(rates=(rates_of(),) * len(spec.rates))
