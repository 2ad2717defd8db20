"""Finds out which optional packages and devices of this machine really work, once per run.

An installed package is not yet a usable one: bitsandbytes is proved by a tiny quantized layer.
What a capability is needed for is the business of ``autotune.knobs.needs``.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import Any

from autotune.core.environment import Device
from autotune.knobs.needs import PACKAGES
from autotune.probe.child.packages import first_line, unusable


def lacking_here(device: Device) -> dict[str, str]:
    """Return why each capability that is not there is not, by name.

    Args:
        device: the device probes will use.
    """
    reasons = {name: unusable(name, package) for name, package in PACKAGES.items()}
    found = {name: reason for name, reason in reasons.items() if reason}
    found |= {} if "bitsandbytes" in found else _broken_bitsandbytes(device)
    found |= {} if "kernels" in found else _unfit_kernels()
    if not _compiles(device):
        found["compiler"] = "torch.compile needs a C++ compiler here, and there is none"
    return found


def traits_of(config: Any) -> frozenset[str]:
    """Return what sets a model apart for the rules.

    Args:
        config: transformers' config of the model.
    """
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    from transformers import AutoModelForCausalLM

    text = config.get_text_config()
    facts = text.to_dict()
    traits = set()
    if facts.get("attn_logit_softcapping"):
        traits.add("softcap")
    if facts.get("attention_dropout"):
        traits.add("dropout")
    if text.model_type not in TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING:
        traits.add("no-lora-targets")
    model = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if model is not None and not model._supports_sdpa:
        traits.add("no-sdpa")
    return frozenset(traits)


def _broken_bitsandbytes(device: Device) -> dict[str, str]:
    """Quantize one small layer and run it; whatever the library raises is the reason."""
    import torch

    try:
        from bitsandbytes.nn import Linear4bit

        layer = Linear4bit(64, 64, compute_dtype=torch.float32, quant_type="nf4").to(device.label)
        with torch.no_grad():
            layer(torch.ones(1, 64, device=device.label))
    except (ImportError, OSError, RuntimeError, AttributeError, NotImplementedError) as error:
        words = f"bitsandbytes is installed and does not work here: {first_line(error)}"
        return {"bitsandbytes": words}
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
