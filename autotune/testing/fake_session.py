"""One made-up probe: what its steps would hold and take, and what the parent would see of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from autotune.core.lengths import Lengths
from autotune.core.measurement import Measurement, Precompute
from autotune.core.memory import highest
from autotune.core.outcome import Phase
from autotune.core.stages import EVAL, LOAD, MEMORY, SAVE, TIMED
from autotune.knobs.table_memory import checkpointing_of
from autotune.probe.child.batches import (
    BatchFacts,
    RowFacts,
    ShapeRule,
    mixed_batches,
    of_few_shapes,
    timed_batches,
    warmup_batches,
    worst_batches,
)
from autotune.probe.child.first_uses import cost_something
from autotune.probe.observed import Observed
from autotune.probe.protocol import ProbeSpec
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_rows import MAX_LENGTH, flattens, made_rows, made_shape, refusal_of
from autotune.testing.fake_script import (
    Dies,
    Hangs,
    Happening,
    Pollutes,
    Raises,
    out_of_memory,
)
from autotune.testing.fake_steps import FakeSteps, OutOfMemory

_ACCUMULATION = 2


class FakeSession:
    """One made-up probe."""

    def __init__(
        self,
        machine: FakeMachine,
        lengths: Lengths,
        spec: ProbeSpec,
        happening: Happening | None,
        name: str,
    ) -> None:
        self.machine, self.lengths, self.spec, self.happening = machine, lengths, spec, happening
        # The noise of a probe depends on its name and its request, not on what ran before it.
        text = f"{machine.seed}/{name}/{spec.model_dump_json()}"
        self.rng = np.random.default_rng(zlib.crc32(text.encode()))
        self.batch = int(spec.options.get("per_device_train_batch_size", 8))
        steps = int(spec.options.get("gradient_accumulation_steps", 1))
        self.accumulation = min(steps, _ACCUMULATION)
        self.steps = FakeSteps(machine, spec, happening, self.rng, self.accumulation)

    def observe(self) -> tuple[Observed, float]:
        """Return what the parent would see, and the seconds it took."""
        refused = refusal_of(self.spec)
        surplus = None
        if isinstance(self.happening, Pollutes):
            surplus = self.happening.surplus_bytes
        nothing = Observed(
            failure=None,
            measurement=None,
            code=0,
            timed_out=False,
            deadline_s=float("inf"),
            peak_rss_bytes=self.machine.loaded_bytes(self.spec),
            host_total_bytes=self.machine.total_bytes,
            cap_bytes=self.spec.cap_bytes,
            device=self.spec.device,
            device_total_bytes=self.machine.total_bytes,
            budget_bytes=self.spec.budget_bytes,
            surplus_bytes=surplus,
            checkpointing=checkpointing_of(self.spec.options),
        )
        if refused is not None:
            return self._failed(nothing, refused, None), self.machine.load_s
        match self.happening:
            case Hangs():
                return replace(nothing, timed_out=True), float("inf")
            case Dies(code=code, log_tail=tail):
                return replace(nothing, code=code, log_tail=tail), self.machine.load_s
            case Raises(phase=phase) if phase in (Phase.LOAD, Phase.FIRST_STEP):
                return self._failed(nothing, self.happening, None), self.machine.load_s
        try:
            measurement = self._measure()
        except OutOfMemory as full:
            words = out_of_memory(self.spec.device, full.phase, full.step, full.wanted_bytes)
            return self._failed(nothing, words, None), self.machine.load_s
        if isinstance(self.happening, Raises):
            whole = measurement if self.happening.step >= len(measurement.memory_steps) else None
            return self._failed(nothing, self.happening, whole), self.machine.load_s
        return replace(nothing, measurement=measurement), _wall(measurement)

    def _failed(self, seen: Observed, why: Raises, measured: Measurement | None) -> Observed:
        return replace(seen, failure=why.failure(), measurement=measured, code=1)

    def _measure(self) -> Measurement:
        spec, machine, steps = self.spec, self.machine, self.steps
        facts = made_rows(spec, self.lengths)
        worst = worst_batches(facts, self.batch)
        steps.load()
        for batch in worst:
            steps.memory(batch)
        wanted = spec.verification
        if wanted is not None:
            steps.mixed(mixed_batches(facts, worst, self.batch, wanted.updates))
            steps.after(SAVE, machine.saving_bytes if wanted.save else None)
            steps.after(EVAL, machine.evaluation_bytes if wanted.eval_rows else None)
        timed, repeated, left_out = self._run_timed(facts)
        memory, later = steps.of(MEMORY), steps.of(TIMED)
        finite = all(s.loss is not None for s in later)
        norms = [float(0.5 + 0.1 * self.rng.random()) for _ in range(steps.updates)]
        return Measurement(
            peaks=reduce(lambda one, other: highest(other, one), steps.peaks.values()),
            load_peaks=steps.peaks[LOAD],
            stage_peaks=steps.peaks,
            memory_steps=memory,
            warmup_steps=steps.of("warmup"),
            timed_steps=later,
            optimizer_seconds=steps.optimizer_seconds,
            grad_norms=tuple(norms if finite else [*norms[:-1], None]),
            updates=steps.updates,
            skipped_updates=steps.skipped,
            worst_rows=tuple(int(facts.source[i]) for i in worst[0].rows if facts.source[i] >= 0),
            worst_tokens=tuple(int(facts.tokens[i]) for i in worst[0].rows),
            effective=self._effective(),
            parameters={"total": 0, "trainable": 0, "bytes": machine.weights_bytes},
            load_seconds=machine.load_s,
            cap_bytes=spec.cap_bytes,
            speed_rows_repeated=repeated,
            shapes_left_out=left_out,
            weights=spec.weights,
            precompute=self._precompute([*worst, *timed]),
            update_peaks_bytes=steps.update_peaks_bytes,
            update_reserved_bytes=steps.update_reserved_bytes,
            saved=SAVE in steps.peaks,
            evaluated=EVAL in steps.peaks,
        )

    def _run_timed(self, facts: RowFacts) -> tuple[list[BatchFacts], bool, int]:
        """Run what is timed, and what goes before; return it, and whether rows were repeated."""
        spec = self.spec
        if spec.memory_only or spec.verification is not None:
            return [], False, 0
        wanted = None if spec.options.get("packing") else list(spec.plan.paired)
        timed, repeated = timed_batches(
            facts, wanted, self.batch, spec.timed_steps, spec.timed_rows, self.accumulation
        )
        shape = ShapeRule(flattens(spec), spec.options.get("pad_to_multiple_of"))
        costly, left_out = cost_something(spec.options, spec.device), 0
        if costly:
            timed, left_out = of_few_shapes(facts, timed, shape)
        warmup = warmup_batches(facts, timed, self.accumulation, shape, every_shape=costly)
        self.steps.run("warmup", warmup)
        self.steps.run(TIMED, timed)
        return timed, repeated, left_out

    def _precompute(self, batches: Sequence[BatchFacts]) -> Precompute | None:
        """Return the one-off pass over the reference: one forward of every micro-batch."""
        if not self.spec.options.get("precompute_ref_log_probs"):
            return None
        shapes = [made_shape(self.spec, batch) for batch in batches]
        return Precompute(
            seconds=sum(self.machine.forward_seconds(shape) for shape in shapes),
            rows=sum(len(batch.rows) for batch in batches),
            tokens=sum(batch.useful_tokens for batch in batches),
            peaks=self.steps.peaks[LOAD],
        )

    def _effective(self) -> dict[str, object]:
        options = self.spec.options
        variant = checkpointing_of(options)
        return {
            "padding_free": flattens(self.spec),
            "max_length": options.get("max_length", MAX_LENGTH),
            "per_device_train_batch_size": self.batch,
            "activation_offloading": bool(options.get("activation_offloading")),
            "gradient_checkpointing": variant != "none",
            "selective": variant == "selective",
            "use_reentrant": variant == "reentrant",
            "attn_implementation": options.get("attn_implementation") or "sdpa",
            **self.machine.instead,
        }


def _wall(measurement: Measurement) -> float:
    steps = (
        *measurement.memory_steps,
        *measurement.warmup_steps,
        *measurement.timed_steps,
    )
    seconds = sum(step.seconds for step in steps) + sum(measurement.optimizer_seconds)
    return measurement.load_seconds + seconds
