"""Measures one candidate: builds TRL's trainer, runs the stages, reads the meters.

Decides nothing about what an ending means; it reports what happened (see probe/classify.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from autotune.core.device_state import DeviceState
from autotune.core.job import Trainer
from autotune.core.measurement import Measurement, Precompute
from autotune.core.memory import Peaks, highest
from autotune.core.outcome import Phase
from autotune.probe.child.batches import BatchFacts, timed_batches, worst_batches
from autotune.probe.child.device import open_device
from autotune.probe.child.effective import effective_values, flattens, reference_of
from autotune.probe.child.gradients import GradientReach
from autotune.probe.child.leak import documents_mix
from autotune.probe.child.remarks import listening
from autotune.probe.child.rows import facts_of, take_rows
from autotune.probe.child.steps import Schedule, Stage, instrumented, update_callback
from autotune.probe.child.verify import (
    PeakSeries,
    eval_rows,
    evaluate,
    held_tensors,
    saving_options,
)
from autotune.probe.meters.base import Cap, Meter
from autotune.probe.phase_file import PhaseFile
from autotune.probe.protocol import ProbeSpec, Verification

#: Micro-steps per update in a probe: two let gradients and activations coexist exactly when the
#: real accumulation does (DESIGN.md 5.1).
_ACCUMULATION = 2
_MEMORY_UPDATES = 2


class Probe:
    """One measurement in progress; what it has so far survives a failure half-way."""

    def __init__(self, spec: ProbeSpec, work_dir: Path) -> None:
        """Remember what to measure.

        Args:
            spec: the candidate, its rows and its cap.
            work_dir: the only folder the probe writes to.
        """
        self.spec = spec
        self.work_dir = work_dir
        self.schedule: Schedule | None = None
        self.meter: Meter | None = None
        self._peaks: Peaks | None = None
        self._load_peaks: Peaks | None = None
        self._allocated_bytes: int | None = None
        self._warnings: list[str] = []
        self._effective: dict[str, Any] = {}
        self._parameters: dict[str, Any] = {}
        self._repeated = False
        self._documents_mix: bool | None = None
        self._series: PeakSeries | None = None
        self._evaluated = False
        self._device_state: DeviceState | None = None
        self._precompute: Precompute | None = None
        self._reach: GradientReach | None = None
        self._started = time.perf_counter()

    @property
    def phase(self) -> Phase:
        """What the probe is doing now."""
        return self.schedule.clock.phase if self.schedule else Phase.LOAD

    @property
    def step(self) -> int:
        """Micro-steps finished so far."""
        return len(self.schedule.clock.steps) if self.schedule else 0

    def run(self) -> Measurement | None:
        """Measure the candidate; what is measured also survives a failure, see `measurement`.

        Raises:
            Exception: whatever the measured thing raises; the child's outermost frame reports it.
        """
        with listening(self._warnings):
            self._run()
        return self.measurement()

    def _run(self) -> None:
        spec = self.spec
        self.meter, cap, sync = open_device(spec.device)
        if spec.cap_bytes is not None:
            cap.enforce(spec.cap_bytes)
        try:
            self._measure(cap, sync)
        except BaseException:
            if spec.device == "cpu":
                cap.lift()  # reporting a failure takes memory too
            raise

    def _measure(self, cap: Cap, sync: Callable[[], None]) -> None:
        assert self.meter is not None
        spec = self.spec
        trainer, holder = self._build()
        if flattens(spec.trainer, trainer):
            packed = bool(spec.options.get("packing", False))
            self._documents_mix = documents_mix(trainer, packed=packed)
        self._load_peaks = self.meter.read()
        self.schedule = self._schedule(trainer, self.meter, cap, sync)
        self.schedule.clock.tell = PhaseFile(self.work_dir).tell
        holder[:] = [self.schedule, trainer]
        trainer.args.max_steps = self.schedule.updates
        trainer.add_callback(update_callback(holder))
        wanted = spec.verification
        if wanted is not None:
            for name, value in saving_options(wanted, self._parameters, self.work_dir).items():
                setattr(trainer.args, name, value)
        held = None if wanted is None else eval_rows(spec.trainer, wanted)
        if spec.options.get("precompute_ref_log_probs"):
            held = self._run_precompute(trainer, held, sync)
        reach = self._reach = GradientReach(trainer.model)
        self.schedule.on_gradients = reach.look
        try:
            trainer.train()
        finally:
            self._effective = effective_values(spec.trainer, trainer, self._parameters)
        if held is not None:
            self._evaluated = evaluate(trainer, held, self.schedule)

    def _run_precompute(self, trainer: Any, held: Any | None, sync: Callable[[], None]) -> Any:
        """Run the one-off pass over the reference on its own; returns the evaluation rows.

        TRL makes the evaluation rows' too before it trains, when the policy still is the reference.
        """
        from autotune.training.prepared import precomputed

        assert self.meter is not None
        args, rows = trainer.args, trainer.train_dataset
        self.meter.reset()
        start = time.perf_counter()
        trainer.train_dataset = precomputed(trainer, rows, "train", trainer._train_batch_size)
        sync()
        seconds = time.perf_counter() - start
        self._precompute = Precompute(seconds=seconds, rows=len(rows), peaks=self.meter.read())
        if held is None:
            return None
        held = trainer._prepare_dataset(held, trainer.processing_class, args, "eval")
        trainer.eval_dataset = precomputed(
            trainer, held, "eval", int(args.per_device_eval_batch_size)
        )
        return trainer.eval_dataset

    def _build(self) -> tuple[Any, list[Any]]:
        from autotune.training.parameters import count_parameters
        from autotune.training.prepared import trainer_class
        from autotune.training.trainer import build_trainer

        spec = self.spec
        holder: list[Any] = []
        packing = bool(spec.options.get("packing", False))
        if packing:
            indices = list(spec.plan.block)
        else:
            indices = sorted({*spec.plan.paired, *(i for s in spec.plan.worst for i in s)})
        trainer = build_trainer(
            spec.trainer,
            options=self._options(),
            model_dir=Path(spec.model_dir),
            weights=spec.weights,
            rows=take_rows(spec.trainer, spec.rows_dir, indices, spec.pretruncate_tokens),
            device=spec.device,
            cls=instrumented(trainer_class(spec.trainer), holder),
        )
        self._parameters = count_parameters(trainer.model, reference_of(spec.trainer, trainer))
        return trainer, holder

    def _options(self) -> dict[str, Any]:
        from autotune.training.arguments import isolated

        options = isolated(self.spec.trainer, self.spec.options, self.work_dir)
        options["gradient_accumulation_steps"] = self.accumulation
        if self.spec.device == "cpu":
            options["use_cpu"] = True
        return options

    @property
    def accumulation(self) -> int:
        """Micro-steps per update while measuring."""
        return min(int(self.spec.options.get("gradient_accumulation_steps", 1)), _ACCUMULATION)

    def _schedule(self, trainer: Any, meter: Meter, cap: Cap, sync: Callable[[], None]) -> Schedule:
        spec, accumulation = self.spec, self.accumulation
        packing = bool(spec.options.get("packing", False))
        facts = facts_of(
            spec.trainer,
            trainer.train_dataset,
            flattens=flattens(spec.trainer, trainer),
            max_length=trainer.args.max_length,
        )
        self._facts = facts
        # With fewer rows in the whole data set than a batch holds, TRL trains on what there is.
        batch = spec.plan.batch or int(trainer.args.per_device_train_batch_size)
        trainer.args.per_device_train_batch_size = trainer._train_batch_size = batch
        worst = worst_batches(facts, batch)
        self._worst: tuple[BatchFacts, ...] = tuple(worst)
        if spec.verification is not None:
            return self._long_schedule(spec.verification, trainer, meter, cap, worst, sync)
        memory = [b for b in worst for _ in range(_MEMORY_UPDATES * accumulation)]
        stages = [Stage("memory", tuple(memory), meter.reset, lambda: self._memory_done(cap))]
        if spec.device == "cpu":
            watched = tuple(worst[0] for _ in range(accumulation))
            watch = _WatchedUpdate(partial(held_tensors, spec.trainer, trainer), self._watched)
            stages.append(Stage("allocated", watched, watch.start, watch.stop))
        if not spec.memory_only:
            timed, self._repeated = timed_batches(
                facts,
                None if packing else list(spec.plan.paired),
                batch,
                spec.timed_steps,
                spec.timed_rows,
                accumulation,
            )
            stages.append(Stage("warmup", tuple(timed[:accumulation])))
            stages.append(Stage("timed", tuple(timed), self._forget_state, self._note_state))
        return _laid_out(spec.trainer, trainer, stages, accumulation, sync)

    def _long_schedule(
        self,
        wanted: Verification,
        trainer: Any,
        meter: Meter,
        cap: Cap,
        worst: list[BatchFacts],
        sync: Callable[[], None],
    ) -> Schedule:
        """Return the schedule of a verification: the worst batches in turns, for many updates."""
        batches = [
            worst[update % len(worst)]
            for update in range(wanted.updates)
            for _ in range(self.accumulation)
        ]
        held = partial(held_tensors, self.spec.trainer, trainer)
        series = self._series = PeakSeries(held, meter, self.spec.device)
        on_cpu = self.spec.device == "cpu"

        def enter() -> None:
            if not on_cpu:
                meter.reset()
            self._forget_state()
            series.start()

        def leave() -> None:
            series.stop()
            if not on_cpu:
                self._peaks = meter.read()
            self._note_state()

        stages = [Stage("series" if on_cpu else "memory", tuple(batches), enter, leave)]
        if on_cpu:
            # What the watch itself needs would be charged to the cap, so the cap holds before it.
            first = tuple(b for b in worst for _ in range(_MEMORY_UPDATES * self.accumulation))
            stages.insert(0, Stage("memory", first, meter.reset, lambda: self._memory_done(cap)))
        schedule = _laid_out(self.spec.trainer, trainer, stages, self.accumulation, sync)
        schedule.on_update = series.update
        return schedule

    def _unreached(self) -> tuple[str, ...]:
        """Say which trained modules no gradient reached, in one remark."""
        if self._reach is None or not self._reach.unreached:
            return ()
        missed, of = self._reach.unreached, self._reach.modules
        return (f"{len(missed)} of {of} trained modules got no gradient, such as {missed[0]}",)

    def _memory_done(self, cap: Cap) -> None:
        assert self.meter is not None
        self._peaks = self.meter.read()
        if self.spec.device == "cpu":
            cap.lift()

    def _forget_state(self) -> None:
        assert self.meter is not None
        self.meter.state()

    def _note_state(self) -> None:
        assert self.meter is not None
        self._device_state = self.meter.state()

    def _watched(self, allocated_bytes: int) -> None:
        self._allocated_bytes = allocated_bytes

    def measurement(self) -> Measurement | None:
        """Return what was measured so far; None before the memory phase is complete."""
        if self.schedule is None or self._peaks is None or self._load_peaks is None:
            return None
        clock = self.schedule.clock
        losses = [float(x) for x in clock.losses]
        clock.steps[:] = [
            step.model_copy(update={"loss": loss if math.isfinite(loss) else None})
            for step, loss in zip(clock.steps, losses, strict=True)
        ]
        series = tuple(self._series.peaks_bytes) if self._series else ()
        allocated = max(series) if series else self._allocated_bytes
        before = self._load_peaks
        if self._precompute is not None:
            before = highest(self._precompute.peaks, before)
        peaks = highest(self._peaks, before, allocated)
        norms = [float(n) for n in clock.grad_norms if n is not None]
        return Measurement(
            peaks=peaks,
            load_peaks=self._load_peaks,
            memory_steps=self.schedule.steps_of("memory"),
            warmup_steps=self.schedule.steps_of("warmup"),
            timed_steps=self.schedule.steps_of("timed"),
            optimizer_seconds=self.schedule.optimizer_seconds_of("timed"),
            grad_norms=tuple(n if math.isfinite(n) else None for n in norms),
            worst_rows=tuple(
                int(self._facts.source[i])
                for i in self._worst[0].rows
                if self._facts.source[i] >= 0
            ),
            worst_tokens=tuple(int(self._facts.tokens[i]) for i in self._worst[0].rows),
            effective=self._effective,
            warnings=(*self._warnings, *self._unreached()),
            parameters=self._parameters,
            load_seconds=(clock.first_step_at or time.perf_counter()) - self._started,
            steps_seconds=sum(s.seconds for s in clock.steps) + sum(clock.optimizer_seconds),
            cap_bytes=self.spec.cap_bytes,
            speed_rows_repeated=self._repeated,
            documents_mix=self._documents_mix,
            update_peaks_bytes=series,
            saved=self.schedule.saved,
            evaluated=self._evaluated,
            device_state=self._device_state,
            precompute=self._precompute,
            trained_modules=self._reach.modules if self._reach else None,
            unreached_modules=self._reach.unreached if self._reach else (),
        )


def _laid_out(
    kind: Trainer,
    trainer: Any,
    stages: list[Stage],
    accumulation: int,
    sync: Callable[[], None],
) -> Schedule:
    """Give the trainer the stages' rows as one data set read in sequence."""
    from autotune.training.prepared import in_order

    order = [row for stage in stages for b in stage.batches for row in b.rows]
    trainer.train_dataset = in_order(kind, trainer, trainer.train_dataset.select(order))
    return Schedule(stages, accumulation, sync)


class _WatchedUpdate:
    """Watch torch's CPU allocator during one update."""

    def __init__(self, held: Callable[[], list[Any]], done: Callable[[int], None]) -> None:
        self._held = held
        self._done = done
        self._watch: Any = None

    def start(self) -> None:
        from autotune.probe.meters.cpu import AllocatorWatch

        self._watch = AllocatorWatch(self._held())

    def stop(self) -> None:
        self._done(self._watch.stop())
