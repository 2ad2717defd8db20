"""A file for ``accelerate launch --config_file``: one machine, as many processes as were asked."""

from __future__ import annotations

from typing import Any

from autotune.core.result import Result
from autotune.emit.header import CPU_MARK
from autotune.emit.settings import Settings, settings_of
from autotune.emit.values import yaml_block


def render(result: Result) -> str:
    """Write the launcher's configuration.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    settings = settings_of(result)
    processes = int(settings.options.get("num_processes") or 1)
    on_cpu = bool(settings.options.get("use_cpu"))
    several = "MULTI_CPU" if on_cpu else "MULTI_GPU"
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": several if processes > 1 else "NO",
        "downcast_bf16": "no",
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": _precision(settings),
        "num_machines": 1,
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": on_cpu,
    }
    lines = [f"# accelerate launch --config_file accelerate.yaml best.py ({processes} process(es))"]
    if result.device.kind == "cpu":
        lines.append(f"# {CPU_MARK}")
    lines += [line for name, value in values.items() for line in yaml_block(name, value)]
    return "\n".join(lines) + "\n"


def _precision(settings: Settings) -> str:
    if settings.options.get("fp16"):
        return "fp16"
    return "bf16" if settings.options.get("bf16") else "no"
