"""Finds out which optional packages and devices of this machine really work, once per run.

An installed package is not yet a usable one: bitsandbytes is proved by a tiny quantized layer.
What a capability is needed for is the business of ``autotune.knobs.needs``.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from autotune.core.environment import Device
from autotune.core.errors import first_line
from autotune.knobs.needs import EVALUATED_4BIT, PACKAGES, missing_package
from autotune.probe.child.packages import unusable


def lacking_here(device: Device) -> dict[str, str]:
    """Return why each capability that is not there is not, by name.

    Args:
        device: the device probes will use.
    """
    reasons = {name: unusable(name, package) for name, package in PACKAGES.items()}
    found = {name: reason for name, reason in reasons.items() if reason}
    found |= {} if "bitsandbytes" in found else _bitsandbytes_lacks(device)
    found |= {} if "kernels" in found else _unfit_kernels()
    if not _compiles(device):
        found["compiler"] = "torch.compile needs a C++ compiler here, and there is none"
    return found


def to_install(options: Mapping[str, Any]) -> list[str]:
    """Return what the machine of another device needs for options, as far as it is not here.

    Args:
        options: TRL options with their final values.
    """
    absent = {name: "" for name, package in PACKAGES.items() if find_spec(package.module) is None}
    missing = missing_package(options, absent)
    if missing is None:
        return []
    need, option = missing
    return [f"{option} needs the package {need.package} where it runs; it is not installed here."]


def traits_of(config: Any) -> frozenset[str]:
    """Return what sets a model apart for the rules.

    Args:
        config: transformers' config of the model.
    """
    from transformers import AutoModelForCausalLM

    text = config.get_text_config()
    facts = text.to_dict()
    traits = set()
    if facts.get("attn_logit_softcapping"):
        traits.add("softcap")
    if facts.get("attention_dropout"):
        traits.add("dropout")
    # TRL 1.16 adds the loss where the config can ask for router logits and weights it
    if "output_router_logits" not in facts or not facts.get("router_aux_loss_coef"):
        traits.add("no-aux-loss")
    model = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if model is not None:
        has = {
            "no-sdpa": model._supports_sdpa,
            "no-flex": model._supports_flex_attn,
            "no-flash": model._supports_flash_attn,
        }
        traits |= {trait for trait, supported in has.items() if not supported}
    return frozenset(traits)


def _bitsandbytes_lacks(device: Device) -> dict[str, str]:
    """Quantize one small layer, evaluate it and train through it.

    Whatever the library raises is the reason. On CPUs with AVX512-BF16, bitsandbytes 0.50 lays the
    weights out anew at the first evaluation, and no gradient passes them after that.
    """
    import torch

    try:
        from bitsandbytes.nn import Linear4bit

        kind = {"compute_dtype": torch.float32, "quant_type": "nf4"}
        layer = Linear4bit(64, 64, bias=False, **kind).to(device.label)
        with torch.no_grad():
            layer.eval()(torch.ones(1, 64, device=device.label))
        through = torch.ones(2, 64, device=device.label, requires_grad=True)
        with warnings.catch_warnings(action="ignore"):
            layer.train()(through).sum().backward()
    except (ImportError, OSError, RuntimeError, AttributeError, NotImplementedError) as error:
        words = f"bitsandbytes is installed and does not work here: {first_line(error)}"
        return {"bitsandbytes": words}
    if through.grad is None or not through.grad.any():
        return {EVALUATED_4BIT: "bitsandbytes passes no gradient through evaluated 4bit weights"}
    return {}


def _unfit_kernels() -> dict[str, str]:
    from transformers.utils import is_kernels_available

    if is_kernels_available():
        return {}
    return {"kernels": "the installed version of kernels is not one transformers works with"}


def _compiles(device: Device) -> bool:
    """Whether inductor has what it generates code for: Triton on a GPU, C++ on a CPU."""
    if device.kind == "cuda":
        return find_spec("triton") is not None
    named = os.environ.get("CXX")
    return any(shutil.which(name) for name in ((named,) if named else ("g++", "clang++", "c++")))
