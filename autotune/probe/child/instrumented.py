"""Attaches a schedule to TRL's own trainer: a subclass and a callback that only listen."""

from __future__ import annotations

import time
from typing import Any

from autotune.core.outcome import Phase


def instrumented(trainer_class: Any, holder: list[Any]) -> Any:
    """Return a subclass of TRL's trainer that reports its steps to a schedule.

    Args:
        trainer_class: TRL's trainer class.
        holder: a list whose first item is the schedule, filled before ``train()`` is called.
    """

    class Instrumented(trainer_class):  # type: ignore[misc]
        """TRL's trainer with a clock around its steps."""

        _seen_grad_norm: Any = None  # stays so where the config does not clip

        def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
            for _ in range(holder[0].left_out):
                super().get_batch_samples(*args, **kwargs)
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
            schedule = holder[0]
            schedule.before_save()
            schedule.clock.phase = Phase.SAVE
            out = super()._save_checkpoint(*args, **kwargs)
            schedule.clock.phase = Phase.STEADY
            schedule.after_save()
            schedule.saved = True
            return out

        def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
            self._seen_grad_norm = super()._get_grad_norm(*args, **kwargs)
            return self._seen_grad_norm

    return Instrumented


def update_callback(holder: list[Any]) -> Any:
    """Return a trainer callback that reports finished optimizer updates.

    Args:
        holder: as for `instrumented`; its second item is the trainer, its third watches its scaler.
    """
    from transformers import TrainerCallback

    class UpdateClock(TrainerCallback):  # type: ignore[misc]
        """Tell the schedule when an update is complete, zeroed gradients included."""

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            trainer: Any = holder[1]
            holder[0].before_update(trainer._seen_grad_norm)

        def on_step_end(self, _: Any, __: Any, control: Any, **___: Any) -> None:
            schedule, trainer, watch = holder
            schedule.after_update(trainer._seen_grad_norm, skipped=watch.skipped)
            control.should_save = schedule.save_is_due
            control.should_training_stop = schedule.done

    return UpdateClock()
