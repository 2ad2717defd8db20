"""How stages follow each other while a trainer runs, told to the schedule as a trainer would."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from autotune.core.memory import Peaks
from autotune.probe.child.batches import BatchFacts
from autotune.probe.child.first_uses import FirstUses, cost_something
from autotune.probe.child.readings import Readings
from autotune.probe.child.steps import Schedule, Stage


def batches(*widths: int) -> tuple[BatchFacts, ...]:
    """Return micro-batches of one row each; a row's number is its width."""
    return tuple(BatchFacts((w,), 1, w, w - 1, w) for w in widths)


@dataclass
class Tensor:
    """A batch's tokens, as far as a schedule looks at them."""

    shape: tuple[int, int]
    labels: int = 0

    def __getitem__(self, _: Any) -> Tensor:
        return self

    def sum(self) -> int:
        return self.labels


@dataclass
class Loop:
    """Run a schedule as transformers' loop does: an update's batches, their steps, the update."""

    schedule: Schedule
    skips: Iterable[bool] = ()
    ran: list[int] = field(default_factory=list)

    def run(self) -> list[int]:
        schedule, skips = self.schedule, iter(self.skips)
        rows = iter(schedule.rows)
        while not schedule.done:
            for _ in range(schedule.left_out * schedule.accumulation):
                next(rows)
            widths = [next(rows) for _ in range(schedule.accumulation)]
            arrived = [
                {"input_ids": Tensor((1, w)), "completion_mask": Tensor((1, w))} for w in widths
            ]
            schedule.fetched(0.0, arrived)
            for _ in widths:
                schedule.before_step()
                schedule.after_step(1.0)
            skipped = next(skips, False)
            schedule.before_update(float("inf") if skipped else 1.0)
            schedule.after_update(1.0, skipped=lambda skipped=skipped: skipped)
            self.ran += widths
        return self.ran


def note(seen: list[str], what: str) -> Callable[[], None]:
    return lambda: seen.append(what)


def test_a_reserve_is_run_only_as_far_as_updates_were_skipped() -> None:
    def ran(*skips: bool) -> list[int]:
        memory = Stage("memory", batches(9, 9), reserve=batches(*[9] * 5))
        return Loop(Schedule([memory, Stage("timed", batches(3, 4))], 1), skips).run()

    assert [9, 9, 3, 4] == ran()
    assert [9, 9, 9, 3, 4] == ran(True)
    assert [9, 9, 9, 9, 3, 4] == ran(True, True)
    assert [9, 9, 9, 3, 4] == ran(False, True)
    assert [9, 9, 3, 4] == ran(False, False, True), "a later one has no reserve"
    assert [9] * 7 == ran(*[True] * 7), "a scale that never settles ends the run"


def test_every_stage_is_entered_and_left_once_whatever_is_skipped() -> None:
    seen: list[str] = []
    stages = [
        Stage(
            name,
            batches(9, 9, 9, 9),
            reserve=batches(*[9] * 8),
            enter=note(seen, f"> {name}"),
            each=note(seen, name),
            leave=note(seen, f"< {name}"),
        )
        for name in ("memory", "mixed")
    ]
    Loop(Schedule(stages, 2), [True, False, False]).run()
    assert seen == ["> memory", *["memory"] * 3, "< memory", "> mixed", "mixed", "mixed", "< mixed"]


def test_skipped_updates_have_no_time_and_show_no_gradients() -> None:
    looked: list[str] = []
    schedule = Schedule([Stage("memory", batches(9, 9), reserve=batches(9, 9))], 1)
    schedule.on_gradients = note(looked, "gradients")
    Loop(schedule, [True]).run()
    assert 3 == len(schedule.steps_of("memory")) == len(schedule.clock.updates)
    assert 2 == len(schedule.optimizer_seconds_of("memory")) == len(looked)


def test_the_first_use_of_a_shape_is_marked_wherever_it_happens() -> None:
    stages = [
        Stage("memory", batches(9, 9)),
        Stage("warmup", batches(5, 9)),
        Stage("timed", batches(9, 5, 4, 4)),
    ]
    schedule = Schedule(stages, 1, first_uses=FirstUses())
    Loop(schedule).run()
    assert [True, False] == [s.first_use for s in schedule.steps_of("warmup")]
    assert [False, False, True, False] == [s.first_use for s in schedule.steps_of("timed")]
    plain = Schedule(stages, 1)
    Loop(plain).run()
    assert not any(s.first_use for s in plain.clock.steps), "where none costs anything"


def test_first_uses_cost_nothing_on_a_cpu_unless_it_compiles() -> None:
    assert not cost_something({}, "cpu")
    assert cost_something({"torch_compile": True}, "cpu")
    assert cost_something({}, "cuda:0")


def test_a_checkpoint_is_due_half_way_through_the_stage_that_saves() -> None:
    due: list[int] = []
    schedule = Schedule(
        [
            Stage("memory", batches(9, 9)),
            Stage(
                "mixed",
                batches(*[9] * 8),
                each=lambda: due.append(schedule.save_is_due),
                saves=True,
            ),
        ],
        2,
    )
    Loop(schedule).run()
    assert [False, True, True, True] == due


class Scripted:
    """A meter that says a number and forgets it."""

    def __init__(self, *peaks: int) -> None:
        self._peaks = list(peaks)

    def reset(self) -> None:
        self._peaks.pop(0)

    def read(self) -> Peaks:
        return Peaks(allocated_bytes=1, reserved_bytes=self._peaks[0], allocation_retries=0)


class Uncapped:
    def lift(self) -> None:
        return


def test_each_stage_keeps_its_own_peak_and_the_highest_is_the_probes() -> None:
    meter: Any = Scripted(3, 4, 7, 9, 5, 0)
    readings = Readings(meter, Uncapped(), on_cpu=False)  # type: ignore[arg-type]
    assert readings.peaks is None
    readings.finish("load")
    readings.begin_memory()
    readings.finish("memory")
    readings.finish("timed")
    readings.finish("memory")
    assert readings.peaks is not None
    held = {name: peaks.reserved_bytes for name, peaks in readings.stages.items()}
    assert {"load": 4, "memory": 7, "timed": 9} == held
    assert 9 == readings.peaks.reserved_bytes
