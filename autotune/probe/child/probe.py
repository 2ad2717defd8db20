"""Measures one candidate: builds TRL's trainer, runs the stages, reads the meters.

Decides nothing about what an ending means; it reports what happened (see probe/classify.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.core.measurement import Measurement, Precompute
from autotune.core.outcome import Phase
from autotune.core.stages import EVAL, LOAD, MEMORY, MIXED, PRECOMPUTE, TIMED
from autotune.probe.child.device import open_device
from autotune.probe.child.effective import effective_values, flattens, reference_of, wraps
from autotune.probe.child.first_uses import FirstUses, cost_something
from autotune.probe.child.gradients import GradientReach
from autotune.probe.child.instrumented import instrumented, update_callback
from autotune.probe.child.leak import documents_mix
from autotune.probe.child.precompute import PrecomputePass
from autotune.probe.child.readings import Readings
from autotune.probe.child.remarks import listening
from autotune.probe.child.rows import facts_of, take_rows
from autotune.probe.child.scaling import SkipWatch
from autotune.probe.child.stages import Stages, accumulation_of
from autotune.probe.child.steps import Schedule
from autotune.probe.child.verify import check_disk, eval_rows, evaluate
from autotune.probe.phase_file import PhaseFile
from autotune.probe.protocol import EMPTIED_EVERY, ProbeSpec


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
        self._readings: Readings | None = None
        self._stages: Stages | None = None
        self._schedule: Schedule | None = None
        self._reach: GradientReach | None = None
        self._warnings: list[str] = []
        self._effective: dict[str, Any] = {}
        self._parameters: dict[str, Any] = {}
        self._documents_mix: bool | None = None
        self._evaluated = False
        self._started = time.perf_counter()

    @property
    def phase(self) -> Phase:
        """What the probe is doing now."""
        return self._schedule.clock.phase if self._schedule else Phase.LOAD

    @property
    def step(self) -> int:
        """Micro-steps finished so far."""
        return self._schedule.clock.step if self._schedule else 0

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
        meter, cap, sync = open_device(spec.device)
        self._readings = Readings(meter, cap, on_cpu=spec.device == "cpu")
        if spec.cap_bytes is not None:
            cap.enforce(spec.cap_bytes)
        try:
            self._measure(self._readings, sync)
        except BaseException:
            if spec.device == "cpu":
                cap.lift()  # reporting a failure takes memory too
            raise

    def _measure(self, readings: Readings, sync: Callable[[], None]) -> None:
        spec = self.spec
        rows = self._rows()
        trainer, holder = self._build(rows)
        if flattens(spec.trainer, trainer):
            packed = bool(spec.options.get("packing", False))
            self._documents_mix = documents_mix(trainer, packed=packed)
        readings.finish(LOAD)
        facts = facts_of(
            spec.trainer,
            trainer.train_dataset,
            flattens=flattens(spec.trainer, trainer),
            max_length=trainer.args.max_length,
            wrapped=rows if wraps(spec.trainer, trainer) else None,
        )
        del rows  # no part of what is measured
        self._stages = Stages(spec, trainer, facts, readings)
        schedule = self._schedule = self._stages.schedule()
        schedule.sync = sync
        schedule.clock.tell = PhaseFile(self.work_dir).tell
        holder[:] = [schedule, trainer, SkipWatch(trainer)]
        trainer.args.max_steps = schedule.most_updates
        trainer.add_callback(update_callback(holder))
        wanted = spec.verification
        if wanted is not None and wanted.save:
            check_disk(self._parameters, self.work_dir)
        held = None if wanted is None else eval_rows(spec.trainer, wanted)
        if spec.options.get("precompute_ref_log_probs"):
            held = self._run_precompute(readings, trainer, held, schedule)
            readings.finish(PRECOMPUTE)
        reach = self._reach = GradientReach(trainer.model)
        schedule.on_gradients = reach.look
        try:
            trainer.train()
        finally:
            self._effective = effective_values(spec.trainer, trainer, self._parameters)
        if held is not None:
            self._evaluate(readings, trainer, held, schedule)

    def _evaluate(self, readings: Readings, trainer: Any, held: Any, schedule: Schedule) -> None:
        watch = self._stages.watched_evaluation() if self._stages else None
        if watch is not None:
            watch.start()
        evaluate(trainer, held, schedule)
        self._evaluated = True
        if watch is not None:
            watch.stop()
        else:
            readings.finish(EVAL)

    def _run_precompute(
        self, readings: Readings, trainer: Any, held: Any | None, schedule: Schedule
    ) -> Any:
        """Run the one-off pass over the reference on its own; returns the evaluation rows.

        TRL makes the evaluation rows' too before it trains, when the policy still is the reference.
        """
        from autotune.training.prepared import precomputed

        args = trainer.args
        costly = cost_something(self.spec.options, self.spec.device)
        once = PrecomputePass(trainer, schedule.sync, FirstUses() if costly else None)
        trainer.train_dataset, seconds = once.run(trainer.train_dataset)
        readings.precompute = Precompute(
            seconds=seconds,
            rows=len(trainer.train_dataset),
            tokens=schedule.useful_tokens,
            peaks=readings.meter.read(),
        )
        if held is None:
            return None
        held = trainer._prepare_dataset(held, trainer.processing_class, args, "eval")
        trainer.eval_dataset = precomputed(
            trainer, held, "eval", int(args.per_device_eval_batch_size)
        )
        return trainer.eval_dataset

    def _rows(self) -> Any:
        plan = self.spec.plan
        if self.spec.options.get("packing", False):
            indices = list(plan.block)
        else:
            indices = sorted({*plan.paired, *(i for s in plan.worst for i in s)})
        return take_rows(
            self.spec.trainer, self.spec.rows_dir, indices, self.spec.pretruncate_tokens
        )

    def _build(self, rows: Any) -> tuple[Any, list[Any]]:
        from autotune.training.parameters import count_parameters
        from autotune.training.prepared import trainer_class
        from autotune.training.trainer import build_trainer

        spec = self.spec
        holder: list[Any] = []
        trainer = build_trainer(
            spec.trainer,
            options=self._options(),
            model_dir=Path(spec.model_dir),
            weights=spec.weights,
            rows=rows,
            device=spec.device,
            cls=instrumented(trainer_class(spec.trainer), holder),
        )
        self._parameters = count_parameters(trainer.model, reference_of(spec.trainer, trainer))
        return trainer, holder

    def _options(self) -> dict[str, Any]:
        from autotune.training.arguments import isolated

        options = isolated(self.spec.trainer, self.spec.options, self.work_dir)
        options["gradient_accumulation_steps"] = accumulation_of(self.spec)
        every = options.get("torch_empty_cache_steps")
        if every and self.spec.verification is None:
            options["torch_empty_cache_steps"] = min(int(every), EMPTIED_EVERY)
        if self.spec.device == "cpu":
            options["use_cpu"] = True
        return options

    def _unreached(self) -> tuple[str, ...]:
        """Say which trained modules no gradient reached, in one remark."""
        if self._reach is None or not self._reach.unreached:
            return ()
        missed, of = self._reach.unreached, self._reach.modules
        return (f"{len(missed)} of {of} trained modules got no gradient, such as {missed[0]}",)

    def measurement(self) -> Measurement | None:
        """Return what was measured so far; None before the memory phase is complete."""
        readings, schedule, stages = self._readings, self._schedule, self._stages
        if readings is None or schedule is None or stages is None or readings.peaks is None:
            return None
        clock = schedule.clock
        losses = [float(x) for x in clock.losses]
        clock.steps[:] = [
            step.model_copy(update={"loss": loss if math.isfinite(loss) else None})
            for step, loss in zip(clock.steps, losses, strict=True)
        ]
        series = tuple(readings.update_peaks_bytes)
        if not readings.on_cpu:
            series = schedule.update_peaks_bytes(MIXED)
        taken = [update for update in clock.updates if not update.skipped]
        norms = [float(u.grad_norm) for u in taken if u.grad_norm is not None]
        worst, facts = list(stages.worst[0].rows), stages.facts
        return Measurement(
            peaks=readings.peaks,
            load_peaks=readings.stages[LOAD],
            stage_peaks=dict(readings.stages),
            memory_steps=schedule.steps_of(MEMORY),
            warmup_steps=schedule.steps_of("warmup"),
            timed_steps=schedule.steps_of(TIMED),
            optimizer_seconds=schedule.optimizer_seconds_of(TIMED),
            grad_norms=tuple(n if math.isfinite(n) else None for n in norms),
            updates=len(taken),
            skipped_updates=len(clock.updates) - len(taken),
            worst_rows=tuple(int(row) for row in facts.source[worst] if row >= 0),
            worst_tokens=tuple(int(n) for n in facts.tokens[worst]),
            effective=self._effective,
            warnings=(*self._warnings, *self._unreached()),
            parameters=self._parameters,
            load_seconds=(clock.first_step_at or time.perf_counter()) - self._started,
            steps_seconds=sum(s.seconds for s in clock.steps)
            + sum(u.seconds for u in clock.updates),
            cap_bytes=self.spec.cap_bytes,
            speed_rows_repeated=stages.rows_repeated,
            shapes_left_out=stages.shapes_left_out,
            documents_mix=self._documents_mix,
            update_peaks_bytes=series,
            update_reserved_bytes=tuple(readings.update_reserved_bytes),
            weights=self.spec.weights,
            saved=schedule.saved,
            evaluated=self._evaluated,
            device_state=readings.device_state,
            precompute=readings.precompute,
            trained_modules=self._reach.modules if self._reach else None,
            unreached_modules=self._reach.unreached if self._reach else (),
        )
