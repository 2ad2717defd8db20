"""Runs TRL's own trainer through stages and notes what every step really did.

The stages are slices of one ordinary ``trainer.train()``: memory (worst batch, capped), allocated
(one more update, watched), warm-up and timed. Nothing of the trainer's step is replaced; the
subclass below only reads the clock around it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autotune.core.measurement import Step
from autotune.core.outcome import Phase
from autotune.probe.child.batches import BatchFacts
from autotune.probe.child.progress import Progress
from autotune.probe.child.realised import Realised, realised

#: Stages whose times nobody reads.
_UNTIMED = ("memory", "series")


@dataclass(frozen=True)
class Stage:
    """One slice of the training run.

    Args:
        name: ``memory``, ``allocated``, ``warmup`` or ``timed``.
        batches: the micro-batches it runs, in order.
        enter: called before its first micro-step.
        leave: called after its last optimizer update.
    """

    name: str
    batches: tuple[BatchFacts, ...]
    enter: Callable[[], None] = lambda: None
    leave: Callable[[], None] = lambda: None


@dataclass
class Clock(Progress):
    """What the steps left behind, in order; filled while the trainer runs."""

    steps: list[Step] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    optimizer_seconds: list[float] = field(default_factory=list)
    grad_norms: list[Any] = field(default_factory=list)
    first_step_at: float | None = None


class Schedule:
    """Follow the stages while the trainer runs and keep the clock."""

    def __init__(self, stages: list[Stage], accumulation: int) -> None:
        """Lay the stages end to end.

        Args:
            stages: in order; each holds whole optimizer updates.
            accumulation: micro-steps per update.
        """
        self.stages = stages
        self.accumulation = accumulation
        self.clock = Clock()
        self._facts = [fact for stage in stages for fact in stage.batches]
        self._mark = 0.0
        self._fetch = 0.0
        self._fetch_share = 0.0
        self._arrived: list[Realised] = []
        starts, at = {}, 0
        for stage in stages:
            starts[at] = stage
            at += len(stage.batches)
        self._starts = starts
        self._current: Stage | None = None
        #: Wait until the device has finished; return the peak since this was last asked.
        self.sync: Callable[[], None] = lambda: None
        self.lap: Callable[[], int | None] = lambda: None
        self.on_update: Callable[[], None] = lambda: None
        self.on_gradients: Callable[[], None] = lambda: None
        self.saved = False

    @property
    def micro_steps(self) -> int:
        """Micro-steps over all stages."""
        return len(self._facts)

    @property
    def useful_tokens(self) -> int:
        """Tokens that are not padding, over all stages."""
        return sum(fact.useful_tokens for fact in self._facts)

    @property
    def updates(self) -> int:
        """Optimizer updates over all stages."""
        return math.ceil(self.micro_steps / self.accumulation)

    def steps_of(self, name: str) -> tuple[Step, ...]:
        """Return the finished micro-steps of one stage."""
        at = 0
        for stage in self.stages:
            if stage.name == name:
                return tuple(self.clock.steps[at : at + len(stage.batches)])
            at += len(stage.batches)
        return ()

    def optimizer_seconds_of(self, name: str) -> tuple[float, ...]:
        """Return the optimizer times of one stage."""
        at = 0
        for stage in self.stages:
            count = len(stage.batches) // self.accumulation
            if stage.name == name:
                return tuple(self.clock.optimizer_seconds[at : at + count])
            at += count
        return ()

    def fetched(self, start: float, batches: list[Any]) -> None:
        """Note how long the batches of one update took to arrive, and what they are.

        Args:
            start: clock time at which they were asked for.
            batches: the collated batches.
        """
        self._fetch_share = (time.perf_counter() - start) / max(1, len(batches))
        due = self._facts[len(self.clock.steps) :]
        self._arrived = [realised(b, fact) for b, fact in zip(batches, due, strict=False)]
        # looking at the batches is not the trainer's time
        self._fetch = time.perf_counter() - start

    def before_step(self) -> None:
        """Enter a stage when its first micro-step is due, and start the clock."""
        index = len(self.clock.steps)
        if index in self._starts:
            self._current = self._starts[index]
            self._current.enter()
            self.sync()
            self._mark = time.perf_counter()
            self._fetch = 0.0
        if index == 0:
            self.clock.first_step_at = time.perf_counter()
        self.clock.phase = Phase.FIRST_STEP if index == 0 else Phase.STEADY

    def after_step(self, loss: Any, *, emptied: bool = False) -> None:
        """Note one finished micro-step, and whether the allocator's cache was given back in it."""
        self.sync()
        now = time.perf_counter()
        fact = self._facts[len(self.clock.steps)]
        batch = self._arrived.pop(0)
        self.clock.losses.append(loss)
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
                peak_bytes=self.lap() if self._untimed else None,
                emptied=emptied,
            )
        )
        self._mark = now
        self._fetch = 0.0
        self.clock.step += 1
        self.clock.phase = Phase.OPTIMIZER_STEP if self._update_is_due() else Phase.STEADY

    def _update_is_due(self) -> bool:
        return len(self.clock.steps) % self.accumulation == 0

    def before_update(self) -> None:
        """Let gradients be looked at while they are there, except where time is taken."""
        if self._untimed:
            self.on_gradients()

    @property
    def _untimed(self) -> bool:
        return self._current is not None and self._current.name in _UNTIMED

    def after_update(self, grad_norm: Any) -> None:
        """Note one finished optimizer update and leave a stage that is complete."""
        self.sync()
        now = time.perf_counter()
        self.clock.optimizer_seconds.append(now - self._mark)
        self.clock.grad_norms.append(grad_norm)
        self.clock.phase = Phase.STEADY
        if self._untimed:
            self._charge_update(self.lap())
        self.on_update()
        done = len(self.clock.steps)
        if self._current is not None and (done in self._starts or done == self.micro_steps):
            self._current.leave()
        self._mark = time.perf_counter()

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


def instrumented(trainer_class: Any, holder: list[Schedule]) -> Any:
    """Return a subclass of TRL's trainer that reports its steps to a schedule.

    Args:
        trainer_class: TRL's trainer class.
        holder: a list whose first item is the schedule, filled before ``train()`` is called.
    """

    class Instrumented(trainer_class):  # type: ignore[misc]
        """TRL's trainer with a clock around its steps."""

        _seen_grad_norm: Any = None  # stays so where the config does not clip

        def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            out = super().get_batch_samples(*args, **kwargs)
            holder[0].fetched(start, out[0])
            return out

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            schedule = holder[0]
            schedule.before_step()
            every = self.args.torch_empty_cache_steps
            emptied = every is not None and self.state.global_step % every == 0
            loss = super().training_step(model, inputs, *args, **kwargs)
            schedule.after_step(loss.detach(), emptied=emptied)
            return loss

        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
            holder[0].clock.phase = Phase.SAVE
            out = super()._save_checkpoint(*args, **kwargs)
            holder[0].clock.phase = Phase.STEADY
            holder[0].saved = True
            return out

        def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
            self._seen_grad_norm = super()._get_grad_norm(*args, **kwargs)
            return self._seen_grad_norm

    return Instrumented


def update_callback(holder: list[Schedule]) -> Any:
    """Return a trainer callback that reports finished optimizer updates.

    Args:
        holder: as for `instrumented`; its second item is the trainer.
    """
    from transformers import TrainerCallback

    class UpdateClock(TrainerCallback):  # type: ignore[misc]
        """Tell the schedule when an update is complete, zeroed gradients included."""

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            holder[0].before_update()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            trainer: Any = holder[1]
            holder[0].after_update(trainer._seen_grad_norm)

    return UpdateClock()
