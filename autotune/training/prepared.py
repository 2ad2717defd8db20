"""TRL's trainers on rows that are already prepared: they do what is left to do, and nothing twice.

TRL 1.16 knows tokenised rows in SFT and Reward; DPO and KTO would tokenise again. Here they only
leave out what ``max_length`` empties and, in KTO, pair prompts with other rows' completions. The
one-off pass over the reference is not run while a trainer is built but when it is asked for, so
that it can be measured on its own.
"""

from __future__ import annotations

from typing import Any

from autotune.core.job import Trainer


def trainer_class(trainer: Trainer) -> Any:
    """Return TRL's trainer class, for DPO and KTO a subclass that takes prepared rows."""
    import trl

    if trainer is Trainer.SFT:
        return trl.SFTTrainer
    if trainer is Trainer.REWARD:
        return trl.RewardTrainer
    if trainer is Trainer.DPO:
        return _dpo(trl.DPOTrainer)
    return _kto(trl.KTOTrainer)


def in_order(trainer: Trainer, built: Any, rows: Any) -> Any:
    """Return rows as the trainer reads them in sequence.

    Args:
        trainer: which trainer.
        built: a trainer whose ``per_device_train_batch_size`` is the one it will train with.
        rows: its prepared rows, selected and ordered; whole micro-batches.
    """
    # KTO's mismatched completions come from the micro-batch a row is in, so from the order.
    if trainer is Trainer.KTO and built.calculate_KL:
        return _mismatched(rows, built.args.per_device_train_batch_size)
    return rows


def precomputed(built: Any, rows: Any, name: str, batch: int) -> Any:
    """Run the one-off pass over the reference and return the rows with its log-probabilities.

    Args:
        built: a DPO or KTO trainer with ``precompute_ref_log_probs``, not trained yet.
        rows: its prepared rows.
        name: ``train`` or ``eval``.
        batch: rows per batch where ``precompute_ref_batch_size`` is not set.
    """
    built.may_precompute = True
    size = built.args.precompute_ref_batch_size or batch
    return built._precompute_ref_logps(rows, name, size)


def _dpo(base: Any) -> Any:
    class PreparedDPOTrainer(base):  # type: ignore[misc]
        """``DPOTrainer`` on rows with ``prompt_ids``, ``chosen_ids`` and ``rejected_ids``."""

        may_precompute = False

        def _prepare_dataset(self, dataset: Any, _: Any, args: Any, __: str) -> Any:
            cuts = args.max_length is not None and args.truncation_mode == "keep_start"
            return _with_completions(dataset, args.max_length) if cuts else dataset

        def _precompute_ref_logps(self, dataset: Any, *args: Any) -> Any:
            return super()._precompute_ref_logps(dataset, *args) if self.may_precompute else dataset

    return PreparedDPOTrainer


def _kto(base: Any) -> Any:
    class PreparedKTOTrainer(base):  # type: ignore[misc]
        """``KTOTrainer`` on rows with ``prompt_ids``, ``completion_ids`` and ``label``."""

        may_precompute = False

        def _prepare_dataset(self, dataset: Any, _: Any, args: Any, __: str) -> Any:
            if args.max_length is not None:
                dataset = _with_completions(dataset, args.max_length)
            batch = args.per_device_train_batch_size
            return _mismatched(dataset, batch) if self.calculate_KL else dataset

        def _precompute_ref_logps(self, dataset: Any, *args: Any) -> Any:
            return super()._precompute_ref_logps(dataset, *args) if self.may_precompute else dataset

    return PreparedKTOTrainer


def _with_completions(dataset: Any, max_length: int) -> Any:
    """Leave out rows whose prompt alone fills ``max_length``, as TRL does."""
    return dataset.filter(lambda prompt: len(prompt) < max_length, input_columns=["prompt_ids"])


def _mismatched(dataset: Any, batch: int) -> Any:
    """Give every row the completion of the row before it in its micro-batch, as TRL does."""
    return dataset.map(_rotated, batched=True, batch_size=batch)


def _rotated(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    completions = rows["completion_ids"]
    return {"KL_completion_ids": [completions[-1], *completions[:-1]]}
