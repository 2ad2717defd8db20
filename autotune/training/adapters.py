"""Finds out which adapters PEFT builds for a model: by building them on one without weights.

Whether adapters fit depends on the layers: fused experts take no dropout and no DoRA, and PEFT
knows the layers of some models by name only. Says nothing of memory or of whether they train.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.adapters import KINDS, adapter_options, adapters_key, target_options
from autotune.training.arguments import build_arguments, isolated
from autotune.training.model import build_model, init_kwargs

#: What layers are made with is settled elsewhere; a model without weights is built anywhere.
_ANYWHERE: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "fp16": False,
    "attn_implementation": None,
    "model_init_kwargs": None,
    "use_liger_kernel": False,
}
#: Errors by which PEFT refuses to adapt a model.
_REFUSALS = (ValueError, TypeError, NotImplementedError)


def unfit_adapters(
    trainer: Trainer,
    options: Mapping[str, Any],
    targets: Iterable[Value],
    *,
    model_dir: Path,
    folder: Path,
) -> dict[str, str]:
    """Return why PEFT refuses adapters on a model, by `adapters_key`; without those it builds.

    Args:
        trainer: which ``trl`` command.
        options: the user's options with their final types.
        targets: choices of layers with adapters, as in `target_options`.
        model_dir: local directory with the model's ``config.json``.
        folder: the only folder a trainer may write to.
    """
    from peft import get_peft_model
    from trl import get_peft_config

    found = {}
    plain = {**isolated(trainer, options, folder), **_ANYWHERE}
    for kind, layers in itertools.product(KINDS, dict.fromkeys(targets)):
        form = {**adapter_options(kind, trainer), **target_options(layers)}
        arguments = build_arguments(trainer, {**plain, **form})
        kwargs = init_kwargs(arguments.model, arguments.training)
        model = build_model(
            trainer, model_dir, kwargs=kwargs, weights="random", quantization=None, device="meta"
        )
        try:
            get_peft_model(model, get_peft_config(arguments.model))
        except _REFUSALS as error:
            found[adapters_key(kind, layers)] = str(error).strip().splitlines()[0].rstrip(".")
    return found
