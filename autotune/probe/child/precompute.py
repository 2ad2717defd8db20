"""Times the one-off pass over the reference (``precompute_ref_log_probs``), first uses apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from autotune.probe.child.first_uses import FirstUses, shapes_of


class PrecomputePass:
    """The pass of one trainer that has not trained yet."""

    def __init__(
        self, trainer: Any, sync: Callable[[], None], first_uses: FirstUses | None
    ) -> None:
        """Take the trainer.

        Args:
            trainer: a DPO or KTO trainer with ``precompute_ref_log_probs``.
            sync: waits until the device has finished.
            first_uses: told of every shape; one that is new is run once more beforehand, and that
                time is not counted. None where no shape costs anything the first time.
        """
        self._trainer = trainer
        self._sync = sync
        self._first_uses = first_uses
        self._apart = 0.0

    def run(self, rows: Any) -> tuple[Any, float]:
        """Return the rows with the reference's log-probabilities, and the seconds of the pass.

        Args:
            rows: its prepared rows.
        """
        from autotune.training.prepared import precomputed

        trainer = self._trainer
        if self._first_uses is not None:
            trainer.compute_ref_log_probs = self._warmed(trainer.compute_ref_log_probs)
        start = time.perf_counter()
        done = precomputed(trainer, rows, "train", trainer._train_batch_size)
        self._sync()
        return done, time.perf_counter() - start - self._apart

    def _warmed(self, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def warmed(model: Any, inputs: Any) -> Any:
            if self._first_uses is not None and self._first_uses.meet(shapes_of(inputs)):
                self._sync()
                start = time.perf_counter()
                compute(model, inputs)
                self._sync()
                self._apart += time.perf_counter() - start
            return compute(model, inputs)

        return warmed
