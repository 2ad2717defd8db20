"""What cannot be traced, by name: each refusal says what, why and what to do instead."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec

from autotune.core.errors import BadInput
from autotune.knobs.needs import missing_package
from autotune.predict.request import TraceRequest

#: Optimizers whose states come from packages that have no shape functions, by how names begin.
_FOREIGN_OPTIMIZERS = (
    "galore",
    "lomo",
    "adalomo",
    "grokadamw",
    "schedule_free",
    "apollo",
    "torchao",
)
_MEASURE = "Measure this candidate with a probe."


class Untraceable(BadInput):
    """Say what keeps a candidate from being traced."""


def _own_code(request: TraceRequest, config: str) -> str | None:
    if json.loads(config).get("auto_map"):
        return "the model runs code of its own repository (auto_map), which is not run to predict"
    return None


def _offloading(request: TraceRequest, _: str) -> str | None:
    if request.target == "cpu" and request.options.get("activation_offloading"):
        return "activation_offloading needs an accelerator, and the target is the CPU"
    return None


def _flash(request: TraceRequest, _: str) -> str | None:
    attention = str(request.options.get("attn_implementation") or "")
    if request.target == "cpu" and "flash" in attention:
        return f"attn_implementation {attention} needs an accelerator, and the target is the CPU"
    if attention == "flex_attention":
        return "flex_attention is compiled when it first runs, and its kernels have no shapes"
    return None


def _compiled(request: TraceRequest, _: str) -> str | None:
    if request.options.get("torch_compile"):
        return "torch_compile decides what is kept while it compiles, which no trace sees"
    return None


def _kernels(request: TraceRequest, _: str) -> str | None:
    kwargs = request.options.get("model_init_kwargs") or {}
    if request.options.get("use_liger_kernel"):
        return "use_liger_kernel replaces layers by Triton kernels, which run on no fake tensor"
    if isinstance(kwargs, dict) and kwargs.get("use_kernels"):
        return "use_kernels replaces layers by kernels of the hub, which run on no fake tensor"
    return None


def _sharded(request: TraceRequest, _: str) -> str | None:
    for name in ("deepspeed", "fsdp"):
        if request.options.get(name):
            return f"{name} spreads the model over processes, and one process is traced"
    return None


def _optimizer(request: TraceRequest, _: str) -> str | None:
    name = str(request.options.get("optim") or "")
    if name.startswith(_FOREIGN_OPTIMIZERS):
        return f"optim {name} comes from a package whose operations have no shape functions"
    return None


def _bitsandbytes(request: TraceRequest, _: str) -> str | None:
    """Its layers and optimizers are traced as they are; only flash kernels have a double."""
    absent = {} if find_spec("bitsandbytes") else {"bitsandbytes": "not installed"}
    missing = missing_package(request.options, absent)
    if missing is None:
        return None
    return (
        f"{missing[1]} is traced with the layers of bitsandbytes, which is not installed here "
        "(pip install bitsandbytes; it needs no GPU for that)"
    )


REFUSALS: tuple[Callable[[TraceRequest, str], str | None], ...] = (
    _own_code,
    _offloading,
    _flash,
    _compiled,
    _kernels,
    _sharded,
    _optimizer,
    _bitsandbytes,
)


def refuse(request: TraceRequest, config: str) -> None:
    """Raise where a request cannot be traced.

    Args:
        request: what is asked.
        config: the model's ``config.json``.

    Raises:
        Untraceable: with what keeps it from being traced.
    """
    for rule in REFUSALS:
        reason = rule(request, config)
        if reason is not None:
            raise Untraceable(f"This candidate cannot be traced: {reason}.", _MEASURE)
