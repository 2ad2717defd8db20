"""TRL's trainer, telling when its micro-steps and updates begin and end; it does nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from transformers import TrainerCallback


class Observer(Protocol):
    """Who is told."""

    def begin_train(self, trainer: Any) -> None:
        """The optimizer is there, nothing is trained yet."""

    def begin_update(self, trainer: Any) -> None:
        """An update begins."""

    def begin_step(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """A micro-step begins; returns the inputs it gets."""

    def begin_backward(self) -> None:
        """The loss is there."""

    def end_step(self, trainer: Any) -> None:
        """A micro-step is over."""

    def end_update(self) -> None:
        """An update is over, gradients dropped."""


def followed_class(base: Any, run: Observer) -> Any:
    """Return a subclass of a trainer that trains on given batches and tells of its steps.

    Args:
        base: TRL's trainer class, or a subclass.
        run: who is told.
    """

    class FollowedTrainer(base):  # type: ignore[misc]
        """TRL's trainer on given batches, telling when its steps begin and end."""

        traced_batches: Sequence[Any] = ()

        def get_train_dataloader(self) -> Any:
            return self.traced_batches

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            arrived = run.begin_step(inputs)
            backward = self.accelerator.backward

            def followed_backward(*a: Any, **k: Any) -> Any:
                run.begin_backward()
                return backward(*a, **k)

            self.accelerator.backward = followed_backward
            try:
                loss = super().training_step(model, arrived, *args, **kwargs)
            finally:
                self.accelerator.backward = backward
            run.end_step(self)
            return loss

    return FollowedTrainer


class Updates(TrainerCallback):  # type: ignore[misc]
    """Tell the run when updates begin and end."""

    def __init__(self, run: Observer, trainer: Any) -> None:
        """Remember whom to tell of which trainer."""
        self._run, self._trainer = run, trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._run.begin_train(self._trainer)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._run.begin_update(self._trainer)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._run.end_update()
