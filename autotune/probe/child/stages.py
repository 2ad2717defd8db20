"""Lays out what a probe runs: which micro-batches in which stage, and what is read around each.

Chooses from the rows TRL really prepared (`batches`); runs nothing itself (`steps`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from autotune.core.job import Trainer
from autotune.probe.child.batches import (
    BatchFacts,
    RowFacts,
    timed_batches,
    warmup_batches,
    worst_batches,
)
from autotune.probe.child.effective import flattens
from autotune.probe.child.paged import paged_bytes
from autotune.probe.child.readings import Readings, WatchedSeries, WatchedUpdate
from autotune.probe.child.steps import Schedule, Stage
from autotune.probe.child.verify import held_tensors
from autotune.probe.protocol import ProbeSpec

#: Micro-steps per update in a probe: two let gradients and activations coexist exactly when the
#: real accumulation does (DESIGN.md 5.1).
_ACCUMULATION = 2
_MEMORY_UPDATES = 2


def accumulation_of(spec: ProbeSpec) -> int:
    """Return the micro-steps per update while measuring."""
    return min(int(spec.options.get("gradient_accumulation_steps", 1)), _ACCUMULATION)


class Stages:
    """The stages of one probe over the rows a trainer prepared."""

    def __init__(self, spec: ProbeSpec, trainer: Any, facts: RowFacts, readings: Readings) -> None:
        """Choose the worst batches and give the trainer the true batch.

        Args:
            spec: what is measured.
            trainer: the constructed trainer.
            facts: its prepared rows.
            readings: told when stages begin and end.
        """
        self._spec = spec
        self._trainer = trainer
        self.facts = facts
        self._readings = readings
        readings.paged_bytes = lambda: paged_bytes(trainer.optimizer)
        self._accumulation = accumulation_of(spec)
        self._held = partial(held_tensors, spec.trainer, trainer)
        # With fewer rows in the whole data set than a batch holds, TRL trains on what there is.
        self._batch = spec.plan.batch or int(trainer.args.per_device_train_batch_size)
        trainer.args.per_device_train_batch_size = trainer._train_batch_size = self._batch
        self.worst = worst_batches(facts, self._batch)
        self.rows_repeated = False

    def schedule(self) -> Schedule:
        """Return the schedule, its rows given to the trainer as one data set read in sequence."""
        wanted = self._spec.verification
        series: WatchedSeries | None = None
        if wanted is None:
            stages = [self._memory(), *self._watched(), *self._timing()]
        else:
            looped = [self.worst[i % len(self.worst)] for i in range(wanted.updates)]
            batches = tuple(b for b in looped for _ in range(self._accumulation))
            if self._readings.on_cpu:
                # What the watch itself needs would be charged to the cap, so the cap holds before.
                series = WatchedSeries(self._readings, self._held)
                stages = [self._memory(), Stage("series", batches, series.start, series.stop)]
            else:
                stages = [self._long_memory(batches)]
        schedule = _laid_out(self._spec.trainer, self._trainer, stages, self._accumulation)
        schedule.lap = self._readings.meter.lap
        if series is not None:
            schedule.on_update = series.update
        return schedule

    def _memory(self) -> Stage:
        """Two updates of every worst batch, capped."""
        repeats = range(_MEMORY_UPDATES * self._accumulation)
        batches = tuple(b for b in self.worst for _ in repeats)
        return Stage("memory", batches, self._readings.meter.reset, self._readings.memory_done)

    def _long_memory(self, batches: tuple[BatchFacts, ...]) -> Stage:
        """A verification where the allocator itself counts: peaks of updates are peaks of laps."""
        readings = self._readings

        def enter() -> None:
            readings.meter.reset()
            readings.begin_state()

        def leave() -> None:
            readings.memory_done()
            readings.end_state()

        return Stage("memory", batches, enter, leave)

    def _watched(self) -> list[Stage]:
        """One update more under the watch that counts live bytes, where the meter cannot."""
        if not self._readings.on_cpu:
            return []
        batches = tuple(self.worst[0] for _ in range(self._accumulation))
        watch = WatchedUpdate(self._readings, self._held)
        return [Stage("allocated", batches, watch.start, watch.stop)]

    def _timing(self) -> list[Stage]:
        """The warm-up, and the paired rows that are timed."""
        spec, readings = self._spec, self._readings
        if spec.memory_only:
            return []
        timed, self.rows_repeated = timed_batches(
            self.facts,
            None if spec.options.get("packing") else list(spec.plan.paired),
            self._batch,
            spec.timed_steps,
            spec.timed_rows,
            self._accumulation,
        )
        warmup = warmup_batches(
            self.facts,
            timed,
            self._accumulation,
            every_shape=bool(spec.options.get("torch_compile")),
            flattened=flattens(spec.trainer, self._trainer),
        )
        return [
            Stage("warmup", tuple(warmup)),
            Stage("timed", tuple(timed), readings.begin_state, readings.end_state),
        ]


def _laid_out(kind: Trainer, trainer: Any, stages: list[Stage], accumulation: int) -> Schedule:
    from autotune.training.prepared import in_order

    order = [row for stage in stages for b in stage.batches for row in b.rows]
    trainer.train_dataset = in_order(kind, trainer, trainer.train_dataset.select(order))
    return Schedule(stages, accumulation)
