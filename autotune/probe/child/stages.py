"""Lays out what a probe runs: which micro-batches in which stage, and what is read around each.

Chooses from the rows TRL really prepared (`batches`); runs nothing itself (`steps`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from autotune.core.job import Trainer
from autotune.core.stages import EVAL, MEMORY, MIXED, SAVE, TIMED
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
from autotune.probe.child.effective import flattens
from autotune.probe.child.first_uses import FirstUses, cost_something
from autotune.probe.child.paged import paged_bytes
from autotune.probe.child.readings import Readings, Watched, WatchedSeries
from autotune.probe.child.steps import Schedule, Stage, nothing
from autotune.probe.child.verify import held_tensors
from autotune.probe.protocol import ProbeSpec, Verification

#: Micro-steps per update in a probe: two let gradients and activations coexist exactly when the
#: real accumulation does (DESIGN.md 5.1).
_ACCUMULATION = 2
_MEMORY_UPDATES = 2
#: Updates a gradient scaler may skip while its scale settles: it begins at 2**16 and is halved at
#: each (torch.amp.GradScaler), so that after these it scales gradients down.
_MOST_SKIPPED = 20


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
        readings.paged_bytes = lambda: trainer.optimizer and paged_bytes(trainer.optimizer)
        self._accumulation = accumulation_of(spec)
        self._held = partial(held_tensors, spec.trainer, trainer)
        # With fewer rows in the whole data set than a batch holds, TRL trains on what there is.
        self._batch = spec.plan.batch or int(trainer.args.per_device_train_batch_size)
        trainer.args.per_device_train_batch_size = trainer._train_batch_size = self._batch
        self.worst = worst_batches(facts, self._batch)
        self.rows_repeated = False
        self.shapes_left_out = 0

    def schedule(self) -> Schedule:
        """Return the schedule, its rows given to the trainer as one data set read in sequence."""
        spec, readings = self._spec, self._readings
        series = WatchedSeries(readings, MIXED, self._held) if readings.on_cpu else None
        if spec.verification is not None:
            stages = [*self._memory(), self._mixed(spec.verification, series)]
        else:
            stages = [*self._memory(), *self._timing(), *self._watched()]
        costly = cost_something(spec.options, spec.device)
        first_uses = FirstUses() if costly else None
        schedule = Schedule(stages, self._accumulation, first_uses=first_uses)
        schedule.lap = readings.meter.lap
        split = readings.finish if series is None else series.split
        schedule.before_save, schedule.after_save = partial(split, MIXED), partial(split, SAVE)
        _give_rows(spec.trainer, self._trainer, schedule.rows)
        return schedule

    def watched_evaluation(self) -> Watched | None:
        """Return a watch over an evaluation after training; None where the meter sees it."""
        return Watched(self._readings, EVAL, self._held) if self._readings.on_cpu else None

    def _memory(self) -> list[Stage]:
        """Two updates of every worst batch, capped; as many more as a gradient scaler skips."""
        readings = self._readings
        leave = partial(readings.finish, MEMORY)
        scaled = self._trainer.accelerator.scaler is not None or self._trainer.args.fp16
        return [
            Stage(
                MEMORY,
                self._updates([worst] * _MEMORY_UPDATES),
                self._updates([worst] * _MOST_SKIPPED) if scaled else (),
                enter=nothing if index else readings.begin_memory,
                leave=leave,
            )
            for index, worst in enumerate(self.worst)
        ]

    def _updates(self, batches: list[BatchFacts]) -> tuple[BatchFacts, ...]:
        """Return the micro-batches of updates that each accumulate over one micro-batch."""
        return tuple(batch for batch in batches for _ in range(self._accumulation))

    def _mixed(self, wanted: Verification, series: WatchedSeries | None) -> Stage:
        """The updates of a verification, watched where the meter does not count live bytes."""
        readings = self._readings
        mixed = mixed_batches(self.facts, self.worst, self._batch, wanted.updates)

        def leave() -> None:
            readings.finish(MIXED)
            readings.end_state()

        seen: dict[str, Any] = {
            "enter": readings.begin_state,
            "each": readings.note_reserved,
            "leave": leave,
        }
        if series is not None:
            # What the watch itself needs would be charged to the cap, so the cap holds before.
            seen = {"enter": series.start, "each": series.update, "leave": series.stop}
        return Stage(MIXED, self._updates(mixed), saves=wanted.save, **seen)

    def _watched(self) -> list[Stage]:
        """One update more under the watch that counts live bytes, where the meter cannot."""
        if not self._readings.on_cpu:
            return []
        watch = Watched(self._readings, MEMORY, self._held)
        batches = self._updates([self.worst[0]])
        return [Stage("allocated", batches, enter=watch.start, leave=watch.stop)]

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
        shape = ShapeRule(
            flattened=flattens(spec.trainer, self._trainer),
            multiple=self._trainer.data_collator.pad_to_multiple_of,
        )
        costly = cost_something(spec.options, spec.device)
        if costly:
            timed, self.shapes_left_out = of_few_shapes(self.facts, timed, shape)
        warmup = warmup_batches(self.facts, timed, self._accumulation, shape, every_shape=costly)

        def leave() -> None:
            readings.end_state()
            readings.timed()

        return [
            Stage("warmup", tuple(warmup), enter=readings.begin_timing),
            Stage(TIMED, tuple(timed), enter=readings.begin_state, leave=leave),
        ]


def _give_rows(kind: Trainer, trainer: Any, order: list[int]) -> None:
    from autotune.training.prepared import in_order

    trainer.train_dataset = in_order(kind, trainer, trainer.train_dataset.select(order))
