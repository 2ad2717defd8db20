"""Which optional packages the user's own options need; checked once, before the first probe.

A literal table; it imports nothing and looks nothing up. Whether a package is there is for the
caller to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Need:
    """An optional package some option needs.

    Args:
        package: distribution name, which is also the name of autotune's extra.
        module: what is imported.
        asks: returns the option that needs it, as ``name=value``; empty when none does.
    """

    package: str
    module: str
    asks: Callable[[Mapping[str, Any]], str]


def _flag(*names: str) -> Callable[[Mapping[str, Any]], str]:
    def asks(options: Mapping[str, Any]) -> str:
        return next((f"{n}={options[n]}" for n in names if options.get(n)), "")

    return asks


def _text(name: str, *parts: str) -> Callable[[Mapping[str, Any]], str]:
    def asks(options: Mapping[str, Any]) -> str:
        value = options.get(name)
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
    Need("bitsandbytes", "bitsandbytes", _flag("load_in_4bit", "load_in_8bit")),
    Need("bitsandbytes", "bitsandbytes", _text("optim", "8bit", "paged")),
    Need("flash-attn", "flash_attn", _text("attn_implementation", "flash_attention_")),
    Need("kernels", "kernels", _text("attn_implementation", "/")),
    Need("kernels", "kernels", _init("use_kernels")),
    Need("liger-kernel", "liger_kernel", _flag("use_liger_kernel")),
    Need("deepspeed", "deepspeed", _flag("deepspeed")),
    Need("vllm", "vllm", _flag("use_vllm")),
)


def missing_package(
    options: Mapping[str, Any], installed: Callable[[str], bool]
) -> tuple[Need, str] | None:
    """Return the first need of the options that is not met, and the option that has it.

    Args:
        options: TRL options with their final values.
        installed: whether a module can be imported.
    """
    for need in NEEDS:
        option = need.asks(options)
        if option and not installed(need.module):
            return need, option
    return None
