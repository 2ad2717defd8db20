"""Options of the user's that TRL accepts and that do nothing here: each once, with the reason.

What the knobs among them do under each other is known to `autotune.knobs.placebos`; options that
are no knobs are in the table below. Says nothing of options that are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.knobs.catalog import BY_NAME, user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.translate import simplified


@dataclass(frozen=True)
class Dependent:
    """Options that are only read where another one is set.

    Args:
        options: their names.
        unless: the options of which one must be set for them to be read.
        why: what there is not, else.
    """

    options: tuple[str, ...]
    unless: tuple[str, ...]
    why: str


DEPENDENTS: tuple[Dependent, ...] = (
    Dependent(
        (
            "lora_r",
            "lora_alpha",
            "lora_dropout",
            "lora_target_modules",
            "lora_target_parameters",
            "lora_modules_to_save",
            "lora_task_type",
            "use_dora",
            "use_rslora",
        ),
        ("use_peft",),
        "there are no adapters without use_peft",
    ),
    Dependent(
        ("bnb_4bit_quant_type", "use_bnb_nested_quant", "bnb_4bit_quant_storage"),
        ("load_in_4bit",),
        "nothing is quantised without load_in_4bit",
    ),
    Dependent(
        ("packing_strategy",), ("packing", "eval_packing"), "no row is packed without packing"
    ),
    Dependent(
        ("gradient_checkpointing_kwargs",),
        ("gradient_checkpointing",),
        "nothing is recomputed without gradient_checkpointing",
    ),
    Dependent(
        ("liger_kernel_config",),
        ("use_liger_kernel",),
        "Liger is not used without use_liger_kernel",
    ),
    Dependent(
        ("eval_packing", "per_device_eval_batch_size", "eval_accumulation_steps", "eval_steps"),
        ("eval_strategy", "eval_on_start"),
        "nothing is evaluated without eval_strategy",
    ),
    Dependent(
        ("precompute_ref_batch_size",),
        ("precompute_ref_log_probs",),
        "the reference is not run beforehand without precompute_ref_log_probs",
    ),
    Dependent(
        ("ref_model_mixup_alpha", "ref_model_sync_steps"),
        ("sync_ref_model",),
        "the reference stays as it is without sync_ref_model",
    ),
)


def idle_options(facts: Facts) -> dict[str, str]:
    """Return the user's options that do nothing here, each as ``name value``, with the reason.

    Args:
        facts: job, rows and machine.
    """
    options = facts.job.options
    own = user_candidate(facts)
    _, merged = simplified(own, facts)
    found = {n: why for n, why in merged.items() if any(o in options for o in _owners(n))}
    for row in DEPENDENTS:
        if not any(_on(facts.option(name)) for name in row.unless):
            found |= {name: row.why for name in row.options if _on(options.get(name))}
    idle = {f"{n} {shown(own.get(n, options.get(n)))}": why for n, why in found.items()}
    kwargs = options.get("model_init_kwargs")
    if isinstance(kwargs, Mapping) and kwargs.get("torch_dtype") is not None:
        # trl/scripts/*.py pass a dtype of their own; transformers takes torch_dtype only without
        used = kwargs.get("dtype", facts.option("dtype"))
        if used is not None:
            name = f"model_init_kwargs.torch_dtype {kwargs['torch_dtype']}"
            idle[name] = f"dtype {used} is passed beside it and wins"
    return idle


def idle_words(where: str, idle: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for every reason.

    Args:
        where: what they have no effect in.
        idle: options as ``name value``, each with its reason.
    """
    by_reason: dict[str, list[str]] = {}
    for name, why in idle.items():
        by_reason.setdefault(why, []).append(name)
    return tuple(
        f"Without effect in {where}: {', '.join(names)}: {why}." for why, names in by_reason.items()
    )


def shown(value: object) -> str:
    """Return a value as YAML writes it."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _owners(name: str) -> tuple[str, ...]:
    """Return the options by which a user sets a knob."""
    return (name, *BY_NAME[name].fixed_by)


def _on(value: object) -> bool:
    """Whether an option is set to anything but off."""
    value = getattr(value, "value", value)
    return bool(value) and value != "no"
