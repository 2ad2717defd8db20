"""Notes what TRL's trainer is given and what comes of it, without changing a step."""

from __future__ import annotations

import math
from typing import Any

from autotune.core.job import Frozen, Trainer
from autotune.probe.child.gradients import GradientReach

UPDATES = 2
#: More micro-batches than two updates of any job have; some streams go on for ever.
MOST_BATCHES = 64


class MicroBatch(Frozen):
    """What the model was given.

    Args:
        rows: rows of the batch.
        width: its columns.
        tokens: tokens that are not padding.
        labels: tokens that are trained on.
        ids: sum of the ids of the tokens, which tells one set of rows from another.
    """

    rows: int
    width: int
    tokens: int
    labels: int
    ids: int


class Watched:
    """Notes what a trainer is given and what comes of it."""

    def __init__(self) -> None:
        self.batches: list[MicroBatch] = []
        self.losses: list[float] = []
        self.grad_norms: list[float] = []
        self.peak_bytes: int | None = None
        self._reach: GradientReach | None = None

    def around(self, cls: Any, kind: Trainer) -> Any:
        """Return a subclass of a trainer that notes its steps and changes none."""
        watched = self

        class Watching(cls):  # type: ignore[misc]
            def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
                watched.batches.append(_seen(inputs))
                if len(watched.batches) > MOST_BATCHES:
                    made = len(watched.grad_norms)
                    raise RuntimeError(f"{made} updates after {MOST_BATCHES} micro-batches")
                loss = super().training_step(model, inputs, *args, **kwargs)
                watched.losses.append(float(loss))
                return loss

            def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
                norm = super()._get_grad_norm(*args, **kwargs)
                watched.grad_norms.append(float(norm))
                return norm

        Watching.__name__, Watching.kind = cls.__name__, kind
        return Watching

    def callback(self, trainer: Any) -> Any:
        """Return a callback that looks at gradients, and at live bytes in the last update."""
        from transformers import TrainerCallback

        from autotune.probe.child.verify import held_tensors
        from autotune.probe.meters.cpu import AllocatorWatch

        watched = self
        reach = self._reach = GradientReach(trainer.model)

        class Last(TrainerCallback):  # type: ignore[misc]
            watch: Any = None

            def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                reach.look()

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if self.watch is not None:
                    watched.peak_bytes = self.watch.stop()
                elif state.global_step == UPDATES - 1:
                    self.watch = AllocatorWatch(held_tensors(trainer.kind, trainer))

        return Last()

    def missing(self) -> str:
        """Say what training lacked although nothing was raised; empty when nothing."""
        if len(self.grad_norms) < UPDATES:
            return f"{len(self.grad_norms)} of {UPDATES} updates were made"
        if not all(batch.labels for batch in self.batches):
            return "a batch without a label"
        if not all(map(math.isfinite, [*self.losses, *self.grad_norms])):
            return "losses or gradients that are no numbers"
        if self._reach is None or not self._reach.unreached:
            return ""
        missed, of = self._reach.unreached, self._reach.modules
        return f"no gradient reached {len(missed)} of {of} trained modules, such as {missed[0]}"


def finite(numbers: list[float]) -> tuple[float, ...]:
    """Return numbers as they are; none when one is no number."""
    return tuple(numbers) if all(map(math.isfinite, numbers)) else ()


def _seen(inputs: Any) -> MicroBatch:
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask")
    if "completion_mask" in inputs:
        labels = int(inputs["completion_mask"][:, 1:].sum())
    elif "labels" in inputs:
        labels = int((inputs["labels"][:, 1:] != -100).sum())
    else:
        labels = int(ids.numel())
    tokens = ids if mask is None else ids[mask.bool()]
    return MicroBatch(
        rows=ids.shape[0],
        width=ids.shape[1],
        tokens=tokens.numel(),
        labels=labels,
        ids=int(tokens.sum()),
    )
