"""The winner as live objects: a ready config of TRL and the arguments of its trainer.

Loads TRL when it is called. Options take the way of TRL's own command line, so that a value is
converted and checked exactly as it would be when ``best.yaml`` is read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from autotune.core.result import Result
from autotune.emit.settings import Settings, settings_of


def cpu_overrides(result: Result) -> dict[str, Any]:
    """Return what a machine without a GPU needs besides the emitted options.

    TRL computes in bf16 unless told otherwise and refuses that without a GPU. Empty for a result
    that was not measured on a CPU.
    """
    if result.device.kind != "cpu":
        return {}
    return {"use_cpu": True, "bf16": False, "fp16": False}


def build_config(result: Result, **overrides: Any) -> Any:
    """Build the config that TRL's parser gets from the emitted YAML.

    Args:
        result: a result with a best trial.
        overrides: config options set on top, e.g. ``max_steps=2`` or `cpu_overrides`.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    return _build(settings_of(result), overrides)[0]


def trainer_kwargs(result: Result, **overrides: Any) -> dict[str, Any]:
    """Return arguments with which TRL's trainer is ready to train: ``SFTTrainer(**kwargs)``.

    The rows are loaded; the model is named and loaded by the trainer.

    Args:
        result: a result with a best trial.
        overrides: config options set on top.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    from trl import get_peft_config, get_quantization_config

    settings = settings_of(result)
    config, model = _build(settings, overrides)
    # As trl/scripts/sft.py does; what the user wrote in model_init_kwargs wins.
    config.model_init_kwargs = {
        "revision": model.model_revision,
        "trust_remote_code": config.trust_remote_code,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(config.model_init_kwargs or {}),
    }
    rows = load_rows(settings)
    evaluates = config.eval_strategy != "no"
    return {
        "model": settings.model,
        "args": config,
        "train_dataset": rows[settings.location.train_split],
        "eval_dataset": rows[settings.location.test_split] if evaluates else None,
        "quantization_config": get_quantization_config(model),
        "peft_config": get_peft_config(model),
    }


def load_rows(settings: Settings) -> Any:
    """Load rows the way TRL's command line does; returns a ``datasets.DatasetDict``."""
    if settings.location.blocks is not None:
        from trl import DatasetMixtureConfig, get_dataset

        return get_dataset(
            DatasetMixtureConfig(
                datasets=[dict(block) for block in settings.location.blocks],
                streaming=bool(settings.options.get("streaming", False)),
                test_split_size=settings.options.get("test_split_size"),
            )
        )
    from datasets import load_dataset

    return load_dataset(
        settings.location.options["dataset_name"],
        name=settings.location.options.get("dataset_config"),
        streaming=bool(settings.options.get("dataset_streaming", False)),
    )


def _build(settings: Settings, overrides: dict[str, Any]) -> tuple[Any, Any]:
    """Return the trainer's config and TRL's ModelConfig."""
    import trl

    config_class = getattr(trl, settings.classes.config)
    parser = trl.TrlParser((config_class, trl.ModelConfig))
    known = {f.name for c in (config_class, trl.ModelConfig) for f in dataclasses.fields(c)}
    values = {k: v for k, v in {**settings.options, **overrides}.items() if k in known}
    parser.set_defaults_with_config(**values, model_name_or_path=settings.model)
    config, model = parser.parse_args_into_dataclasses(args=[], look_for_args_file=False)
    return config, model
