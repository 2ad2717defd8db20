"""One made-up probe: what its steps would hold and take, and what the parent would see of it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.core.lengths import Lengths
from autotune.core.measurement import Measurement, Precompute, Step
from autotune.core.memory import Peaks
from autotune.core.outcome import Phase
from autotune.knobs.table_memory import checkpointing_of
from autotune.probe.child.batches import BatchFacts, timed_batches, warmup_batches, worst_batches
from autotune.probe.observed import Observed
from autotune.probe.protocol import EMPTIED_EVERY, ProbeSpec
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_rows import MAX_LENGTH, flattens, made_rows, made_shape, refusal_of
from autotune.testing.fake_script import (
    Dies,
    Diverges,
    Grows,
    Hangs,
    Happening,
    Pollutes,
    Raises,
    Spills,
    out_of_memory,
)

_UPDATES = 2
_ACCUMULATION = 2
_CUDA_ONLY = "a CUDA number; this machine is a CPU"


class _OutOfMemory(Exception):
    def __init__(self, phase: Phase, step: int, wanted_bytes: int) -> None:
        super().__init__()
        self.phase, self.step, self.wanted_bytes = phase, step, wanted_bytes


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
        except _OutOfMemory as full:
            words = out_of_memory(self.spec.device, full.phase, full.step, full.wanted_bytes)
            return self._failed(nothing, words, None), self.machine.load_s
        if isinstance(self.happening, Raises):
            whole = measurement if self.happening.step >= len(measurement.memory_steps) else None
            return self._failed(nothing, self.happening, whole), self.machine.load_s
        return replace(nothing, measurement=measurement), _wall(measurement)

    def _failed(self, seen: Observed, why: Raises, measured: Measurement | None) -> Observed:
        return replace(seen, failure=why.failure(), measurement=measured, code=1)

    def _measure(self) -> Measurement:
        spec, machine = self.spec, self.machine
        packing = bool(spec.options.get("packing", False))
        facts = made_rows(spec, self.lengths)
        worst = worst_batches(facts, self.batch)
        load_bytes = machine.charged_bytes(machine.loaded_bytes(spec), spec.device)
        self._hold(load_bytes, Phase.LOAD, 0)
        memory, allocated = self._memory_steps(worst)
        timed: list[BatchFacts] = []
        repeated = False
        if not spec.memory_only and spec.verification is None:
            wanted = None if packing else list(spec.plan.paired)
            timed, repeated = timed_batches(
                facts, wanted, self.batch, spec.timed_steps, spec.timed_rows, self.accumulation
            )
        compiled = bool(spec.options.get("torch_compile"))
        warmup = warmup_batches(
            facts, timed, self.accumulation, every_shape=compiled, flattened=flattens(spec)
        )
        warm = [self._step(b, None) for b in warmup]
        steps = [self._step(b, i) for i, b in enumerate(timed)]
        updates = (len(memory) + len(warm) + len(timed)) // self.accumulation
        finite = all(s.loss is not None for s in steps)
        norms: list[float | None] = [float(0.5 + 0.1 * self.rng.random()) for _ in range(updates)]
        return Measurement(
            peaks=self._peaks(allocated),
            load_peaks=self._peaks(machine.loaded_bytes(spec)),
            memory_steps=tuple(memory),
            warmup_steps=tuple(warm),
            timed_steps=tuple(steps),
            optimizer_seconds=tuple(
                machine.optimizer_s * self._noise() for _ in range(len(timed) // self.accumulation)
            ),
            grad_norms=tuple(norms if finite else [*norms[:-1], None]),
            worst_rows=tuple(int(facts.source[i]) for i in worst[0].rows if facts.source[i] >= 0),
            worst_tokens=tuple(int(facts.tokens[i]) for i in worst[0].rows),
            effective=self._effective(),
            parameters={"total": 0, "trainable": 0, "bytes": machine.weights_bytes},
            load_seconds=machine.load_s,
            cap_bytes=spec.cap_bytes,
            speed_rows_repeated=repeated,
            weights=spec.weights,
            precompute=self._precompute([*worst, *timed]),
            **self._verified(memory),
        )

    def _precompute(self, batches: Sequence[BatchFacts]) -> Precompute | None:
        """Return the one-off pass over the reference: one forward of every micro-batch."""
        if not self.spec.options.get("precompute_ref_log_probs"):
            return None
        shapes = [made_shape(self.spec, batch) for batch in batches]
        return Precompute(
            seconds=sum(self.machine.forward_seconds(shape) for shape in shapes),
            rows=sum(len(batch.rows) for batch in batches),
            tokens=sum(batch.useful_tokens for batch in batches),
            peaks=self._peaks(self.machine.loaded_bytes(self.spec)),
        )

    def _verified(self, memory: Sequence[Step]) -> dict[str, Any]:
        """Return what only a verification measures."""
        wanted = self.spec.verification
        if wanted is None:
            return {}
        peaks = [step.peak_bytes or 0 for step in memory]
        starts = range(0, len(peaks), self.accumulation)
        return {
            "update_peaks_bytes": tuple(max(peaks[i : i + self.accumulation]) for i in starts),
            "saved": wanted.save,
            "evaluated": bool(wanted.eval_rows),
        }

    def _memory_steps(self, worst: Sequence[BatchFacts]) -> tuple[list[Step], int]:
        """Run two updates per worst batch (a verification: as many as it asks for) under the cap.

        Returns:
            The steps, and the allocated peak.
        """
        machine, device = self.machine, self.spec.device
        steps: list[Step] = []
        highest = 0
        wanted = self.spec.verification
        updates = _UPDATES * len(worst) if wanted is None else wanted.updates
        order = [worst[u * len(worst) // updates] for u in range(updates)]
        for batch in (b for b in order for _ in range(self.accumulation)):
            done = len(steps)
            update = done // self.accumulation
            allocated = machine.step_bytes(made_shape(self.spec, batch), self.spec, update)
            if isinstance(self.happening, Grows):
                allocated += self.happening.bytes_per_step * done
            charged = machine.charged_bytes(allocated, device)
            self._hold(charged, Phase.STEADY if done else Phase.FIRST_STEP, done)
            step = self._step(batch, None)
            steps.append(step.model_copy(update={"peak_bytes": charged}))
            highest = max(highest, allocated)
            if len(steps) % self.accumulation == 0:
                highest = max(highest, machine.static_bytes(self.spec, 1))
                self._hold(
                    machine.charged_bytes(machine.static_bytes(self.spec, 1), device),
                    Phase.OPTIMIZER_STEP,
                    len(steps),
                )
        return steps, highest

    def _hold(self, charged_bytes: int, phase: Phase, step: int) -> None:
        """Fail as the device would when more is charged than may be held."""
        if isinstance(self.happening, Spills):
            return
        limits = [self.machine.total_bytes - self.machine.others_bytes]
        if isinstance(self.happening, Pollutes):
            limits = [limits[0] - self.happening.surplus_bytes]
        if self.spec.cap_bytes is not None:
            limits.append(self.spec.cap_bytes)
        if charged_bytes > min(limits):
            raise _OutOfMemory(phase, step, charged_bytes - min(limits))

    def _noise(self) -> float:
        return max(0.1, 1.0 + self.machine.noise_ratio * float(self.rng.standard_normal()))

    def _step(self, batch: BatchFacts, timed: int | None) -> Step:
        shape = made_shape(self.spec, batch)
        every = min(int(self.spec.options.get("torch_empty_cache_steps") or 0), EMPTIED_EVERY)
        emptied = bool(every) and (timed or 0) // self.accumulation % every == 0
        seconds = self.machine.step_seconds(shape, self.spec) * self._noise()
        seconds += self.machine.emptying_s * emptied
        if isinstance(self.happening, Spills):
            seconds *= self.happening.slowdown
        loss: float | None = 2.0 + 0.1 * float(self.rng.random())
        if isinstance(self.happening, Diverges) and timed is not None:
            loss = None if timed >= self.happening.step else loss
        return Step(
            seconds=seconds,
            fetch_seconds=0.0,
            rows=shape.rows,
            width=shape.width,
            sequences=batch.sequences,
            useful_tokens=batch.useful_tokens,
            label_tokens=batch.label_tokens,
            longest=batch.longest,
            loss=loss,
            emptied=emptied,
        )

    def _peaks(self, allocated_bytes: int) -> Peaks:
        if self.spec.device == "cpu":
            return Peaks(
                allocated_bytes=allocated_bytes,
                process_bytes=allocated_bytes,
                absent={"reserved": _CUDA_ONLY, "device_used": _CUDA_ONLY},
            )
        machine = self.machine
        reserved = int(allocated_bytes * machine.reserved_ratio)
        if isinstance(self.happening, Spills) and self.happening.peak_bytes is not None:
            reserved = self.happening.peak_bytes
        process = reserved + machine.context_bytes
        return Peaks(
            allocated_bytes=allocated_bytes,
            reserved_bytes=reserved,
            context_bytes=machine.context_bytes,
            context_source="the machine says so",
            paged_bytes=machine.paged_bytes(self.spec),
            process_bytes=process,
            device_used_bytes=min(process + machine.others_bytes, machine.total_bytes),
            allocation_retries=0,
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
