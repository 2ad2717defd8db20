"""Counted remarks on ratings and masks nobody reads; texts are followed in ``survival``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.job import Trainer
from autotune.core.profile import Notice
from autotune.dataset.scan import Column


def unread_label(trainer: Trainer, columns: Mapping[str, Column]) -> tuple[Notice, ...]:
    """Return a remark when rows are rated and the trainer takes all of them for good.

    Args:
        trainer: who trains on them.
        columns: what each column holds.
    """
    label = columns.get("label")
    if trainer is not Trainer.SFT or label is None or label.kind != "flag":
        return ()
    return (
        Notice(
            code="unread-label",
            count=sum(seen.count for seen in label.kinds.values()),
            message="column 'label' (true or false) is not read: sft trains on rows rated false as "
            "well. --trainer kto learns from both ratings; else leave those rows out.",
        ),
    )


def unread_mask(columns: Mapping[str, Column], options: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Return a remark when TRL drops a mask of the prompt, so that the prompt is trained on.

    Args:
        columns: what each column of tokenised rows holds.
        options: TRL options the user set.
    """
    mask = columns.get("completion_mask")
    masked = "labels" in columns or options.get("completion_only_loss")
    if mask is None or "input_ids" not in columns or masked:
        return ()
    return (
        Notice(
            code="unread-mask",
            count=mask.scanned,
            message="column 'completion_mask' is not read, so every token is trained on: TRL "
            "reads it with completion_only_loss=true only.",
        ),
    )
