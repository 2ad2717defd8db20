"""The steps of one made-up probe, stage by stage: what they hold and how long they take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.core.measurement import Step
from autotune.core.memory import Peaks, highest
from autotune.core.outcome import Phase
from autotune.core.stages import LOAD, MEMORY, MIXED, PHASES, TIMED
from autotune.probe.child.batches import BatchFacts
from autotune.probe.child.first_uses import FirstUses, cost_something
from autotune.probe.protocol import EMPTIED_EVERY, ProbeSpec
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_rows import made_shape
from autotune.testing.fake_script import Diverges, Grows, Happening, Pollutes, Spills

#: Updates of a worst batch, and the most a gradient scaler may skip of them.
_UPDATES = 2
_MOST_SKIPPED = 20
_CUDA_ONLY = "a CUDA number; this machine is a CPU"


class OutOfMemory(Exception):
    """More is charged than may be held."""

    def __init__(self, phase: Phase, step: int, wanted_bytes: int) -> None:
        """Say where, after how many micro-steps, and what the request was that failed."""
        super().__init__()
        self.phase, self.step, self.wanted_bytes = phase, step, wanted_bytes


class FakeSteps:
    """Run made-up micro-steps and keep what they left behind."""

    def __init__(
        self,
        machine: FakeMachine,
        spec: ProbeSpec,
        happening: Happening | None,
        rng: np.random.Generator,
        accumulation: int,
    ) -> None:
        """Begin with nothing run.

        Args:
            machine: what micro-batches cost.
            spec: the request.
            happening: what befalls the probe.
            rng: of the noise.
            accumulation: micro-steps per update.
        """
        self._machine, self._spec, self._happening, self._rng = machine, spec, happening, rng
        self._accumulation = accumulation
        self._ran: list[tuple[str, Step]] = []
        self._met = FirstUses() if cost_something(spec.options, spec.device) else None
        self.peaks: dict[str, Peaks] = {}
        self.update_peaks_bytes: tuple[int, ...] = ()
        self.update_reserved_bytes: tuple[int, ...] = ()
        self.optimizer_seconds: tuple[float, ...] = ()
        self.updates = self.skipped = 0

    def of(self, stage: str) -> tuple[Step, ...]:
        """Return the micro-steps of one stage."""
        return tuple(step for name, step in self._ran if name == stage)

    def load(self) -> None:
        """Build the model."""
        self._hold(LOAD, self._machine.loaded_bytes(self._spec))

    def memory(self, batch: BatchFacts) -> None:
        """Run a worst batch until two of its updates took place, however many are skipped."""
        before = self.updates
        for update in range(_UPDATES + _MOST_SKIPPED):
            if self.updates - before >= _UPDATES:
                return
            if update >= _UPDATES and not self._scales:
                return
            self._update(MEMORY, [batch] * self._accumulation)

    @property
    def _scales(self) -> bool:
        return bool(self._spec.options.get("fp16"))

    def mixed(self, batches: Sequence[BatchFacts]) -> None:
        """Run the updates of a verification, one micro-batch each."""
        for batch in batches:
            self._update(MIXED, [batch] * self._accumulation)
        peaks = [step.peak_bytes or 0 for step in self.of(MIXED)]
        starts = range(0, len(peaks), self._accumulation)
        self.update_peaks_bytes = tuple(max(peaks[i : i + self._accumulation]) for i in starts)
        if self._spec.device != "cpu":
            reserved = np.maximum.accumulate(self.update_peaks_bytes) - self._machine.context_bytes
            held = reserved * self._machine.mixed_ratio
            self.update_reserved_bytes = tuple(int(bytes_) for bytes_ in held)

    def run(self, stage: str, batches: Sequence[BatchFacts]) -> None:
        """Run micro-batches whose time is taken, or that go before them."""
        for at in range(0, len(batches), self._accumulation):
            self._update(stage, batches[at : at + self._accumulation])

    def after(self, stage: str, more_bytes: int | None) -> None:
        """Save or evaluate: hold more than is held between updates; None does not."""
        if more_bytes is not None:
            self._hold(stage, self._machine.static_bytes(self._spec, self.updates) + more_bytes)

    def _update(self, stage: str, batches: Sequence[BatchFacts]) -> None:
        machine, spec = self._machine, self._spec
        for batch in batches:
            allocated = machine.step_bytes(made_shape(spec, batch), spec, self.updates)
            if isinstance(self._happening, Grows):
                allocated += self._happening.bytes_per_step * len(self._ran)
            self._hold(stage, allocated)
            step = self._step(stage, batch)
            if stage in (MEMORY, MIXED):
                charged = machine.charged_bytes(allocated, spec.device)
                step = step.model_copy(update={"peak_bytes": charged})
            self._ran.append((stage, step))
        if self._scales and self.skipped < machine.skipped_updates:
            self.skipped += 1
            return
        self.updates += 1
        self._hold(stage, machine.static_bytes(spec, 1), Phase.OPTIMIZER_STEP)
        if stage == TIMED:
            self.optimizer_seconds += (machine.optimizer_s * self.noise(),)

    def _hold(self, stage: str, allocated_bytes: int, phase: Phase | None = None) -> None:
        """Note what is held, and fail as the device would when that is more than may be."""
        stage = TIMED if stage == "warmup" else stage
        peaks = self._peaks(stage, allocated_bytes)
        known = self.peaks.get(stage)
        self.peaks[stage] = peaks if known is None else highest(peaks, known)
        if isinstance(self._happening, Spills):
            return
        machine, spec = self._machine, self._spec
        limits = [machine.total_bytes - machine.others_bytes]
        if isinstance(self._happening, Pollutes):
            limits = [limits[0] - self._happening.surplus_bytes]
        if spec.cap_bytes is not None:
            limits.append(spec.cap_bytes)
        charged_bytes = machine.charged_bytes(allocated_bytes, spec.device)
        if charged_bytes > min(limits):
            while_training = Phase.STEADY if self._ran else Phase.FIRST_STEP
            where = phase or PHASES.get(stage, while_training)
            raise OutOfMemory(where, len(self._ran), charged_bytes - min(limits))

    def noise(self) -> float:
        """Return what a time is multiplied by."""
        return max(0.1, 1.0 + self._machine.noise_ratio * float(self._rng.standard_normal()))

    def _step(self, stage: str, batch: BatchFacts) -> Step:
        shape = made_shape(self._spec, batch)
        seconds = self._machine.step_seconds(shape, self._spec) * self.noise()
        first = self._met is not None and self._met.meet(
            frozenset({("input_ids", (shape.rows, shape.width))})
        )
        if first:
            seconds += self._machine.first_use_s
        emptied = self._empties(stage)
        seconds += self._machine.emptying_s * emptied
        if isinstance(self._happening, Spills):
            seconds *= self._happening.slowdown
        loss: float | None = 2.0 + 0.1 * float(self._rng.random())
        if isinstance(self._happening, Diverges) and stage == TIMED:
            loss = None if len(self.of(TIMED)) >= self._happening.step else loss
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
            first_use=first,
            emptied=emptied,
        )

    def _empties(self, stage: str) -> bool:
        """Whether the allocator's cache is emptied in the next step; rarely only in timed ones."""
        every = min(int(self._spec.options.get("torch_empty_cache_steps") or 0), EMPTIED_EVERY)
        update = len(self.of(TIMED)) // self._accumulation
        return every == 1 or (every > 1 and stage == TIMED and update % every == 0)

    def _peaks(self, stage: str, allocated_bytes: int) -> Peaks:
        machine = self._machine
        if self._spec.device == "cpu":
            return Peaks(
                allocated_bytes=allocated_bytes,
                process_bytes=allocated_bytes,
                absent={"reserved": _CUDA_ONLY, "device_used": _CUDA_ONLY},
            )
        reserved = int(allocated_bytes * machine.reserved_ratio)
        if stage in (TIMED, MIXED):  # beside what the worst batch left in the cache
            cached = self.peaks[MEMORY].reserved_bytes or 0
            reserved = int(max(reserved, cached) * machine.mixed_ratio)
        spills = self._happening if stage != LOAD else None
        if isinstance(spills, Spills) and spills.peak_bytes is not None:
            reserved = spills.peak_bytes
        process = reserved + machine.context_bytes
        return Peaks(
            allocated_bytes=allocated_bytes,
            reserved_bytes=reserved,
            context_bytes=machine.context_bytes,
            context_source="the machine says so",
            paged_bytes=machine.paged_bytes(self._spec),
            process_bytes=process,
            device_used_bytes=min(process + machine.others_bytes, machine.total_bytes),
            allocation_retries=0,
        )
