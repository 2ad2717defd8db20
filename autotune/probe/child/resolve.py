"""Reads the user's options as TRL does and checks what it lets through, before anything is built.

Resolves precision once for the device, so that no probe fails for it. What only fails when it is
built is found by ``autotune.training.constructs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.environment import Device
from autotune.core.errors import BadInput, EnvironmentUnable, NotBuiltYet, nearest
from autotune.core.job import Job, Trainer
from autotune.knobs.adapters import REWARD_TASK
from autotune.knobs.isolation import LAUNCH_FIELDS
from autotune.knobs.needs import PACKAGES, missing_package, too_old
from autotune.knobs.unmeasured import unmeasured
from autotune.knobs.versions import canonical_options, deprecated, untrainable

#: Options that count something there must be at least one of.
_POSITIVE = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "max_length",
    "pad_to_multiple_of",
    "dataset_num_proc",
    "lora_r",
    "lora_alpha",
)
#: Those of them that may be null.
_NULLABLE = ("max_length", "pad_to_multiple_of", "dataset_num_proc")
#: Options about processes beside the one a probe is; the user's file gets them back.
_OF_PROCESSES = ("ddp_backend",)


def resolve_options(
    job: Job,
    device: Device,
    notices: list[str],
    versions: dict[str, str],
    lacking: dict[str, str],
    *,
    on_cpu: bool,
) -> dict[str, Any]:
    """Parse the user's options with TRL and resolve precision once for the device.

    Raises:
        BadInput: TRL or the arithmetic of a search cannot use them.
        EnvironmentUnable: they ask for what this machine or this version cannot do.
    """
    from autotune.training.arguments import parse_options, require_options

    never = untrainable(job.trainer, versions, on_cpu=on_cpu)
    if never is not None:
        raise EnvironmentUnable(f"{never}.", "Install trl 1.16 or newer, or measure on a GPU.")
    options = canonical_options(job.options)
    options = {k: v for k, v in options.items() if k not in (*LAUNCH_FIELDS, *_OF_PROCESSES)}
    require_options(job.trainer, options, job.dataset.blocks or ())
    _check_launch(job.options)
    _check_measured(options)
    # TRL's default (bf16) is refused on a CPU unless it is told that the CPU is meant, and on a
    # GPU without bf16; precision is resolved here so that no probe fails for it.
    machine = {"use_cpu": True} if on_cpu else {}
    if not on_cpu and options.pop("use_cpu", None):
        notices.append(f"use_cpu is left out: {device.label} is what is measured.")
    if on_cpu and options.pop("tf32", None):
        notices.append("tf32 is for a GPU: it is left out here and given back in what is emitted.")
    if "bf16" not in options and "fp16" not in options:
        if device.bf16:
            options["bf16"] = True
        else:
            half = device.kind == "cuda"
            options.update({"bf16": False, "fp16": half})
            notices.append(
                f"{device.name} (compute capability {device.capability}) has no bf16: "
                f"{'fp16' if half else 'float32'} is used and written into the config."
            )
    # once more: nested options may be text before TRL has read them
    parsed = canonical_options(parse_options(job.trainer, {**options, **machine}))
    for name in machine:
        if name not in options:
            parsed.pop(name)
    _check_measured(parsed)  # once more: text has become mappings
    _check_packages(parsed, lacking, device)
    _check_values(parsed)
    _resolve_task(job.trainer, parsed, notices)
    if job.options.get("bf16") and parsed["bf16"] and not device.bf16:
        notices.append(
            f"bf16 is true, and {device.name} (compute capability {device.capability}) has no "
            "bf16: transformers refuses it or torch computes it slowly. fp16=true is usual there."
        )
    _check_device_map(parsed, notices)
    notices += deprecated(job.trainer, parsed, versions)
    return parsed


def _resolve_task(trainer: Trainer, options: dict[str, Any], notices: list[str]) -> None:
    """Give adapters of a reward model the task they are for.

    TRL's default is that of a language model, with which PEFT cannot make one of rewards
    (peft 0.21, ``PeftModelForCausalLM`` asks for ``prepare_inputs_for_generation``).

    Raises:
        BadInput: the user asks for another task.
    """
    if trainer is not Trainer.REWARD or not options.get("use_peft"):
        return
    if "lora_task_type" not in options:
        notices.append(
            f"lora_task_type is not set, and TRL's default fails on a reward model: {REWARD_TASK} "
            "is used and written into the config."
        )
    given = options.setdefault("lora_task_type", REWARD_TASK)
    if given != REWARD_TASK:
        raise BadInput(
            f"lora_task_type is {given!r}, and adapters of a reward model need {REWARD_TASK}: PEFT "
            "refuses the model or freezes its score otherwise.",
            f"Write lora_task_type: {REWARD_TASK}, or leave it out.",
        )


def _check_launch(options: Mapping[str, Any]) -> None:
    """Check what TRL's command line hands to a launcher: probes use none of it, the run does.

    Raises:
        BadInput: there is no such accelerate config, or no such number of processes.
    """
    import trl

    named = options.get("accelerate_config")
    shipped = Path(trl.__file__).parent / "accelerate_configs"
    known = [file.stem for file in sorted(shipped.glob("*.yaml"))]
    if named is not None and named not in known and not Path(str(named)).is_file():
        raise BadInput(
            f"accelerate_config is {named!r}, which is neither a file nor one of TRL's"
            f"{nearest(str(named), known)}.",
            f"TRL's are {', '.join(known)}.",
        )
    count = options.get("num_processes", 1)
    if not str(count).isdigit() or int(count) < 1:
        raise BadInput(f"num_processes is {count!r}, expected a whole number above zero.")


def _check_device_map(options: dict[str, Any], notices: list[str]) -> None:
    """Say that spreading a model over GPUs is not what is measured: probes see one."""
    kwargs = options.get("model_init_kwargs") or {}
    if kwargs.get("device_map") is not None:
        notices.append(
            f"model_init_kwargs.device_map {kwargs['device_map']!r} is not measured: a probe sees "
            "one device and the whole model is on it."
        )


def _check_values(options: dict[str, Any]) -> None:
    """Check what TRL's parser lets through and the arithmetic of a search cannot use.

    Raises:
        BadInput: a batch, an accumulation or a length is not a whole number above zero.
        EnvironmentUnable: the option is one this version cannot measure.
    """
    for name in _POSITIVE:
        value = options.get(name, 1)
        if name in _NULLABLE and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadInput(f"{name} is {value!r}, expected a whole number above zero.")
    _check_duration(options.get("max_steps", -1), options.get("num_train_epochs"))
    _check_accumulation(options)


def _check_measured(options: dict[str, Any]) -> None:
    """Stop at what this version does not measure.

    Raises:
        NotBuiltYet: names it and what to do instead.
    """
    found = unmeasured(options)
    if found is not None:
        raise NotBuiltYet(found.reason, found.advice)


def _check_accumulation(options: dict[str, Any]) -> None:
    """Check that there is one number of accumulated micro-batches: a candidate's split sets it.

    Raises:
        BadInput: accelerate's own number is set, which transformers refuses beside another.
    """
    config = options.get("accelerator_config")
    steps = None if config is None else (config.gradient_accumulation_kwargs or {}).get("num_steps")
    if steps is not None:
        raise BadInput(
            f"accelerator_config.gradient_accumulation_kwargs.num_steps is {steps!r}, beside which "
            "transformers takes no gradient_accumulation_steps, and that is what is tuned.",
            f"Set gradient_accumulation_steps {steps!r} instead.",
        )


def check_has_end(options: dict[str, Any]) -> None:
    """Stop where a run over a stream is not told when it ends; looking at rows needs no end.

    Raises:
        BadInput: transformers cannot infer the number of steps.
    """
    streams = options.get("dataset_streaming") or options.get("streaming")
    if streams and int(options.get("max_steps", -1)) < 1:
        raise BadInput(
            "max_steps is not set, and a stream of rows has no end that is known beforehand.",
            "Set max_steps, or leave dataset_streaming out.",
        )


def _check_duration(max_steps: float, epochs: float | None) -> None:
    """Check that the run has a step: transformers takes 0 and less as "not set".

    Raises:
        BadInput: nothing would be trained, or a number that means nothing.
    """
    if max_steps != -1 and max_steps < 1:
        raise BadInput(
            f"max_steps is {max_steps!r}, expected a whole number above zero.",
            "Leave it out, or set -1, to train num_train_epochs.",
        )
    if max_steps == -1 and epochs is not None and epochs <= 0:
        raise BadInput(f"num_train_epochs is {epochs!r}, expected a number above zero.")


def _check_packages(options: dict[str, Any], lacking: dict[str, str], device: Device) -> None:
    """Stop before the first probe when an option needs a package or a GPU that is not there.

    Raises:
        EnvironmentUnable: names the option, what it needs and what to do.
    """
    old = too_old(options, device)
    if old:
        raise EnvironmentUnable(f"{old}.", "Choose another value, such as sdpa.")
    missing = missing_package(options, lacking)
    if missing is not None:
        need, option = missing
        ours = PACKAGES[need.package].least is not None
        wanted = f"'autotune[{need.package}]'" if ours else need.package
        raise EnvironmentUnable(
            f"{option} needs the package {need.package}: {lacking[need.package]}.",
            f"Install it with: pip install --upgrade {wanted}",
        )
