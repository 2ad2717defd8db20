"""What of the user's own config TRL would refuse as it stands and autotune writes otherwise.

The config is measured and emitted the way it can train; this says so. Changes nothing itself: the
writing is that of the knobs (`autotune.knobs.translate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.job import Trainer


def mended(trainer: Trainer, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one sentence for everything in a config that is written otherwise to train at all.

    Args:
        trainer: which ``trl`` command.
        options: the user's TRL options, canonical names and final types.
    """
    found = []
    flattens = options.get("padding_free") and not options.get("packing")
    if trainer is Trainer.SFT and flattens and options.get("max_length", 1) is not None:
        found.append(
            "TRL refuses padding_free without packing while max_length is set, and sets it by "
            "default: max_length is null here, and longer rows are cut beforehand."
        )
    kwargs = options.get("model_init_kwargs") or {}
    if kwargs.get("torch_dtype") is not None and "dtype" not in kwargs:
        found.append(
            "model_init_kwargs.torch_dtype does nothing beside the dtype trl gives "
            f"({options.get('dtype', 'float32')}): set dtype."
        )
    return tuple(found)
