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
from autotune.core.job import Job
from autotune.knobs.isolation import LAUNCH_FIELDS
from autotune.knobs.needs import PACKAGES, missing_package
from autotune.knobs.versions import canonical_options, deprecated

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
#: Options that need several processes.
_DISTRIBUTED = ("fsdp", "parallelism_config")


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
    from autotune.training.arguments import parse_options

    _check_launch(job.options)
    options = canonical_options(job.options)
    options = {k: v for k, v in options.items() if k not in LAUNCH_FIELDS}
    # TRL's default (bf16) is refused on a CPU unless it is told that the CPU is meant, and on a
    # GPU without bf16; precision is resolved here so that no probe fails for it.
    machine = {"use_cpu": True} if on_cpu else {}
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
    parsed = parse_options(job.trainer, {**options, **machine})
    for name in machine:
        if name not in options:
            parsed.pop(name)
    _check_packages(parsed, lacking)
    _check_values(parsed)
    if job.options.get("bf16") and parsed["bf16"] and not device.bf16:
        notices.append(
            f"bf16 is true, and {device.name} (compute capability {device.capability}) has no "
            "bf16: transformers refuses it or torch computes it slowly. fp16=true is usual there."
        )
    _check_device_map(parsed, notices)
    notices += deprecated(job.trainer, parsed, versions)
    return parsed


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
    for name in _DISTRIBUTED:
        if options.get(name):
            raise NotBuiltYet(
                f"{name} divides the model over processes, and a probe is one process: it is not "
                "measured by this version.",
                "Leave it out to see what one process holds.",
            )
    if options.get("truncation_mode") == "keep_end":
        raise NotBuiltYet(
            "truncation_mode keep_end is not measured by this version (TRL has deprecated it).",
            "Use keep_start, or max_length null.",
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


def _check_packages(options: dict[str, Any], lacking: dict[str, str]) -> None:
    """Stop before the first probe when an option needs a package that is not there or not usable.

    Raises:
        EnvironmentUnable: names the option, the package and how to install it.
    """
    missing = missing_package(options, lacking)
    if missing is not None:
        need, option = missing
        ours = PACKAGES[need.package].least is not None
        wanted = f"'autotune[{need.package}]'" if ours else need.package
        raise EnvironmentUnable(
            f"{option} needs the package {need.package}: {lacking[need.package]}.",
            f"Install it with: pip install --upgrade {wanted}",
        )
