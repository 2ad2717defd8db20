"""What options ask of machine and packages; checked once, before the first probe.

Literal tables and pure functions; nothing is imported and nothing looked up here. Whether a
package is there and works is found out by the preparing process (``probe.child.capabilities``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from autotune.core.candidate import Value
from autotune.core.environment import Device
from autotune.knobs.facts import Facts
from autotune.knobs.knob import Knob
from autotune.knobs.versions import unavailable

#: How a capability begins that is a GPU's generation; NVIDIA's number follows.
_COMPUTE = "compute capability "
#: Capability of 4-bit weights to be trained through after they were evaluated.
EVALUATED_4BIT = "training through evaluated 4bit weights"
#: Capability of layers to be replaced by kernels of the hub; of attention, its name is one.
LAYER_KERNELS = "kernels of the hub for layers"


@dataclass(frozen=True)
class Package:
    """An optional package.

    Args:
        module: what it is imported as.
        least: oldest version that is used; None where autotune has no extra of its name.
    """

    module: str
    least: str | None = None


#: Capability -> the package it is; one with a version is an extra of autotune's (pyproject.toml).
PACKAGES: Mapping[str, Package] = {
    "bitsandbytes": Package("bitsandbytes", "0.48"),
    "flash-attn": Package("flash_attn", "2.7"),
    # transformers tells the later ones by the name of the distribution: modules are shared
    "flash-attn-3": Package("flash_attn_interface"),
    "flash-attn-4": Package("flash_attn"),
    "kernels": Package("kernels", "0.11"),
    "liger-kernel": Package("liger_kernel", "0.6"),
    "deepspeed": Package("deepspeed", "0.18"),
    "vllm": Package("vllm", "0.11"),
}


@dataclass(frozen=True)
class Need:
    """An optional package some option of the user's needs.

    Args:
        package: distribution name, a key of `PACKAGES`.
        asks: returns the option that needs it, as ``name=value``; empty when none does.
        compute: oldest compute capability of a GPU it runs on; None where any will do.
    """

    package: str
    asks: Callable[[Mapping[str, Any]], str]
    compute: str | None = None


def _flag(*names: str) -> Callable[[Mapping[str, Any]], str]:
    def asks(options: Mapping[str, Any]) -> str:
        return next((f"{n}={options[n]}" for n in names if options.get(n)), "")

    return asks


def _text(name: str, *parts: str) -> Callable[[Mapping[str, Any]], str]:
    def asks(options: Mapping[str, Any]) -> str:
        kwargs = options.get("model_init_kwargs")
        value = options.get(name)
        if isinstance(kwargs, Mapping):
            value = kwargs.get(name, value)
        found = value is not None and any(p in str(getattr(value, "value", value)) for p in parts)
        return f"{name}={getattr(value, 'value', value)}" if found else ""

    return asks


def _init(name: str) -> Callable[[Mapping[str, Any]], str]:
    def asks(options: Mapping[str, Any]) -> str:
        kwargs = options.get("model_init_kwargs")
        value = kwargs.get(name) if isinstance(kwargs, Mapping) else None
        return f"model_init_kwargs.{name}={value}" if value else ""

    return asks


NEEDS: tuple[Need, ...] = (
    Need("bitsandbytes", _flag("load_in_4bit", "load_in_8bit")),
    # torch's own 8-bit optimizers (adamw_torch_8bit) are torchao's, which autotune does not offer
    Need("bitsandbytes", _text("optim", "w_8bit", "x_8bit", "n_8bit", "bnb", "paged")),
    Need("flash-attn", _text("attn_implementation", "flash_attention_2"), "8.0"),
    Need("flash-attn-3", _text("attn_implementation", "flash_attention_3"), "9.0"),
    Need("flash-attn-4", _text("attn_implementation", "flash_attention_4"), "9.0"),
    # kernels of the hub are built from the same sources
    Need("kernels", _text("attn_implementation", "/flash-attn2", "/vllm-flash-attn2"), "8.0"),
    Need("kernels", _text("attn_implementation", "/flash-attn3", "/vllm-flash-attn3"), "9.0"),
    Need("kernels", _text("attn_implementation", "/")),
    Need("kernels", _init("use_kernels")),
    Need("liger-kernel", _flag("use_liger_kernel")),
    Need("vllm", _flag("use_vllm")),
)


def missing_package(
    options: Mapping[str, Any], lacking: Mapping[str, str]
) -> tuple[Need, str] | None:
    """Return the first need of the user's options that is not met, and the option that has it.

    Args:
        options: TRL options with their final values.
        lacking: why each capability this machine does not have is not there, by name.
    """
    for need in NEEDS:
        option = need.asks(options)
        if option and need.package in lacking:
            return need, option
    return None


def too_old(options: Mapping[str, Any], device: Device) -> str:
    """Return which of the user's options a GPU is too old for, and why; empty when none.

    Args:
        options: TRL options with their final values.
        device: what is measured or predicted; nothing is said where its capability is not known.
    """
    for need in NEEDS:
        option = need.asks(options)
        if option and need.compute is not None:
            reason = _too_old(need.compute, device)
            if reason:
                return f"{option} cannot run: {reason}"
    return ""


def lacks(knob: Knob, choice: Value, facts: Facts) -> str:
    """Return what this machine lacks for a choice, in words; empty when nothing.

    Args:
        knob: a row of the table.
        choice: one of its choices.
        facts: job, versions, device and what the machine lacks.
    """
    reasons = (_missing(capability, facts) for capability in knob.needs.get(choice, ()))
    return next((reason for reason in reasons if reason), "")


def why_not(knob: Knob, choice: Value, facts: Facts) -> str:
    """Return why a choice is not offered on this machine and these versions; empty when it is.

    Args: as `lacks`.
    """
    reason = lacks(knob, choice, facts)
    return reason or unavailable(knob.name, choice, facts.job.trainer, facts.versions) or ""


def _missing(capability: str, facts: Facts) -> str:
    """Return why a capability is not there; empty when it is."""
    if capability == "accelerator":
        on_cpu = facts.device.kind == "cpu"
        return "it needs an accelerator; this job runs on the CPU" if on_cpu else ""
    if capability == "memory of its own" and facts.device.unified:
        return "it is pointless here: the device's memory is shared with the system"
    if capability == "bf16":
        kind = f"{facts.device.name} (compute capability {facts.device.capability})"
        return "" if facts.device.bf16 else f"{kind} has no bf16"
    if capability.startswith(_COMPUTE):
        return _too_old(capability.removeprefix(_COMPUTE), facts.device)
    return facts.lacking.get(capability, "")


def _too_old(least: str, device: Device) -> str:
    """Return how far a GPU is from a compute capability; empty when it has it, or none is known."""
    have = device.capability
    if have is None or Version(have) >= Version(least):
        return ""
    return f"it needs compute capability {least} or more, and {device.name} has {have}"
