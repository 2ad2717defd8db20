"""Runs TRL's own trainer through stages and notes what every step really did.

The stages are slices of one ordinary ``trainer.train()``: memory (worst batch, capped), warm-up,
timed, allocated (one more update, watched); in a verification memory and mixed. Nothing of the
trainer's step is replaced; the subclass (`instrumented`) only reads the clock around it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autotune.core.measurement import Step
from autotune.core.outcome import Phase
from autotune.core.stages import MEMORY, MIXED
from autotune.probe.child.batches import BatchFacts
from autotune.probe.child.first_uses import FirstUses
from autotune.probe.child.progress import Progress
from autotune.probe.child.realised import Realised, realised

#: Stages whose times nobody reads.
_UNTIMED = (MEMORY, MIXED)
#: Updates of a stage with a reserve that must have taken place: the second has optimizer states.
_LEAST_UPDATES = 2


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, eq=False)
class Stage:
    """One slice of the training run.

    Args:
        name: ``memory``, ``warmup``, ``timed``, ``allocated`` or ``mixed``.
        batches: the micro-batches it runs, in order.
        reserve: micro-batches that follow as long as fewer than two of its updates took place: a
            gradient scaler skips updates while its scale settles.
        enter: called before its first micro-step.
        each: called after each of its optimizer updates.
        leave: called after its last optimizer update.
        saves: saves a checkpoint half-way.
    """

    name: str
    batches: tuple[BatchFacts, ...]
    reserve: tuple[BatchFacts, ...] = ()
    enter: Callable[[], None] = nothing
    each: Callable[[], None] = nothing
    leave: Callable[[], None] = nothing
    saves: bool = False


@dataclass
class Update:
    """One optimizer update as it ended.

    Args:
        stage: the stage it belongs to.
        seconds: wall time after its last micro-step.
        grad_norm: of its gradients; None where the trainer does not tell.
        skipped: the gradient scaler left it out: its gradients had overflowed.
    """

    stage: Stage
    seconds: float
    grad_norm: Any
    skipped: bool


@dataclass
class Clock(Progress):
    """What the steps left behind, in order; filled while the trainer runs."""

    steps: list[Step] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    first_step_at: float | None = None


class Schedule:
    """Follow the stages while the trainer runs and keep the clock."""

    def __init__(
        self, stages: list[Stage], accumulation: int, *, first_uses: FirstUses | None = None
    ) -> None:
        """Lay the stages end to end, each with its reserve.

        Args:
            stages: in order; each holds whole optimizer updates.
            accumulation: micro-steps per update.
            first_uses: told of every shape; None where none costs anything the first time.
        """
        self.stages = stages
        self.accumulation = accumulation
        self.clock = Clock()
        self._plan = [
            (stage, fact) for stage in stages for fact in (*stage.batches, *stage.reserve)
        ]
        #: Where in the plan the next micro-step is, and micro-batches before it that are left out.
        self._at = 0
        self._left_out = 0
        self._first_uses = first_uses
        self._mark = 0.0
        self._fetch = 0.0
        self._fetch_share = 0.0
        self._arrived: list[Realised] = []
        self._current: Stage | None = None
        #: Wait until the device has finished; return the peak since this was last asked.
        self.sync: Callable[[], None] = nothing
        self.lap: Callable[[], int | None] = lambda: None
        self.on_gradients: Callable[[], None] = nothing
        self.before_save: Callable[[], None] = nothing
        self.after_save: Callable[[], None] = nothing
        self.saved = False

    @property
    def rows(self) -> list[int]:
        """The prepared rows of all micro-batches, reserves included, in order."""
        return [row for _, fact in self._plan for row in fact.rows]

    @property
    def useful_tokens(self) -> int:
        """Tokens of those rows that are not padding."""
        return sum(fact.useful_tokens for _, fact in self._plan)

    @property
    def most_updates(self) -> int:
        """Optimizer updates over all stages, reserves included."""
        return math.ceil(len(self._plan) / self.accumulation)

    @property
    def done(self) -> bool:
        """Whether nothing is left to run."""
        return self._at >= len(self._plan)

    @property
    def save_is_due(self) -> bool:
        """Whether a checkpoint is to be saved now, after an update."""
        stage = self._current
        if stage is None or not stage.saves or self.saved:
            return False
        return self.clock.stages.count(stage) >= len(stage.batches) // 2

    def steps_of(self, name: str) -> tuple[Step, ...]:
        """Return the finished micro-steps of the stages of one name."""
        of = zip(self.clock.steps, self.clock.stages, strict=True)
        return tuple(step for step, stage in of if stage.name == name)

    def optimizer_seconds_of(self, name: str) -> tuple[float, ...]:
        """Return the times of a stage's updates that took place."""
        done = (u for u in self.clock.updates if u.stage.name == name and not u.skipped)
        return tuple(update.seconds for update in done)

    @property
    def left_out(self) -> int:
        """Updates whose micro-batches arrive next and are not run; asking forgets them."""
        count, self._left_out = self._left_out // self.accumulation, 0
        return count

    def fetched(self, start: float, batches: list[Any]) -> None:
        """Note how long the batches of one update took to arrive, and what they are.

        Args:
            start: clock time at which they were asked for.
            batches: the collated batches.
        """
        self._fetch_share = (time.perf_counter() - start) / max(1, len(batches))
        due = self._plan[self._at :]
        self._arrived = [realised(b, fact) for b, (_, fact) in zip(batches, due, strict=False)]
        # looking at the batches is not the trainer's time
        self._fetch = time.perf_counter() - start

    def before_step(self) -> None:
        """Enter a stage when its first micro-step is due, and start the clock."""
        stage, _ = self._plan[self._at]
        if stage is not self._current:
            self._current = stage
            stage.enter()
            self.sync()
            self._mark = time.perf_counter()
            self._fetch = 0.0
        first = not self.clock.steps
        if first:
            self.clock.first_step_at = time.perf_counter()
        self.clock.phase = Phase.FIRST_STEP if first else Phase.STEADY

    def after_step(self, loss: Any, *, emptied: bool = False) -> None:
        """Note one finished micro-step, and whether the allocator's cache was given back in it."""
        self.sync()
        now = time.perf_counter()
        stage, fact = self._plan[self._at]
        batch = self._arrived.pop(0)
        self.clock.losses.append(loss)
        self.clock.stages.append(stage)
        self.clock.steps.append(
            Step(
                seconds=max(0.0, now - self._mark - self._fetch) + self._fetch_share,
                fetch_seconds=self._fetch_share,
                rows=batch.rows,
                width=batch.width,
                sequences=fact.sequences,
                useful_tokens=batch.useful_tokens,
                label_tokens=batch.label_tokens,
                longest=fact.longest,
                loss=None,
                peak_bytes=self.lap() if stage.name in _UNTIMED else None,
                first_use=self._first_uses is not None and self._first_uses.meet(batch.shapes),
                emptied=emptied,
            )
        )
        self._at += 1
        self._mark = now
        self._fetch = 0.0
        self.clock.step += 1
        self.clock.phase = Phase.OPTIMIZER_STEP if self._update_is_due() else Phase.STEADY

    def _update_is_due(self) -> bool:
        return len(self.clock.steps) % self.accumulation == 0

    def before_update(self, grad_norm: Any) -> None:
        """Let gradients be looked at while they are there, except where time is taken.

        Args:
            grad_norm: of these gradients; those that overflowed tell nothing.
        """
        if self._untimed and (grad_norm is None or math.isfinite(float(grad_norm))):
            self.on_gradients()

    @property
    def _untimed(self) -> bool:
        return self._current is not None and self._current.name in _UNTIMED

    def after_update(self, grad_norm: Any, skipped: Callable[[], bool] = lambda: False) -> None:
        """Note one finished optimizer update and leave a stage that is complete.

        Args:
            grad_norm: of its gradients; None where the trainer does not tell.
            skipped: returns whether the gradient scaler left it out; asked after time is taken.
        """
        self.sync()
        seconds = time.perf_counter() - self._mark
        stage = self._plan[self._at - 1][0]
        self.clock.updates.append(Update(stage, seconds, grad_norm, skipped()))
        self.clock.phase = Phase.STEADY
        if self._untimed:
            self._charge_update(self.lap())
        stage.each()
        self._pass_over_reserve(stage)
        if self.done or self._plan[self._at][0] is not stage:
            stage.leave()
        self._mark = time.perf_counter()

    def _pass_over_reserve(self, stage: Stage) -> None:
        """Leave out what is left of a stage's reserve once enough of its updates took place.

        A stage whose whole reserve did not bring them is the last one: the scale never settled.
        """
        run = self.clock.stages.count(stage)
        if run < len(stage.batches) or not stage.reserve:
            return
        done = sum(u.stage is stage and not u.skipped for u in self.clock.updates)
        if done >= _LEAST_UPDATES:
            over = len(stage.batches) + len(stage.reserve) - run
            self._at += over
            self._left_out += over
        elif run == len(stage.batches) + len(stage.reserve):
            self._at = len(self._plan)

    def _charge_update(self, peak_bytes: int | None) -> None:
        """Give the last step the peak of its update too, where that was higher."""
        last = self.clock.steps[-1]
        if peak_bytes is not None and peak_bytes > (last.peak_bytes or 0):
            self.clock.steps[-1] = last.model_copy(update={"peak_bytes": peak_bytes})

    def update_peaks_bytes(self, name: str) -> tuple[int, ...]:
        """Return the peak of every whole update of an untimed stage, where steps have one."""
        peaks = [step.peak_bytes for step in self.steps_of(name) if step.peak_bytes is not None]
        whole = range(0, len(peaks) - self.accumulation + 1, self.accumulation)
        return tuple(max(peaks[at : at + self.accumulation]) for at in whole)
