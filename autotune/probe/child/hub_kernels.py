"""Fetches kernels of the hub while it can be reached, so that probes load them from the cache.

They are loaded as transformers loads them for a model, through the cache of the ``kernels``
library. One that probes could not load, without the hub, is told with the reason: transformers
ends with an error where attention is missing, and silently keeps the original of a layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from autotune.core.errors import EnvironmentUnable, first_line
from autotune.knobs.needs import LAYER_KERNELS

#: Errors in which ``kernels`` and transformers refuse to load one: no build, no entry, no network,
#: a library that does not load.
_REFUSALS = (
    *(ImportError, OSError, RuntimeError, ValueError, AttributeError, AssertionError),
    *(NotImplementedError, LookupError, TypeError),
)
#: Names of errors that say the hub was not reached; the HTTP library depends on the version.
_UNREACHED = (
    *("ConnectError", "ConnectTimeout", "ReadTimeout", "ProxyError", "ConnectionError"),
    *("OfflineModeIsEnabled", "LocalEntryNotFoundError", "MaxRetryError", "NameResolutionError"),
)
#: The same in words, where the error is a plain one.
_UNCACHED = ("local cache", "local snapshot")
_NO_HUB = "is not in the cache, and the hub cannot be reached"
#: What ``kernels`` says where none of a kernel's builds is for this torch (0.11 to 0.18).
_NO_BUILD = ("build variant", "not compatible with", "no compatible build")


def fetch_attention(options: Mapping[str, Any], searched: Iterable[str]) -> dict[str, str]:
    """Fetch attention kernels; return why some cannot be loaded in a probe, by name.

    Args:
        options: the user's TRL options.
        searched: as ``attn_implementation`` names them.

    Raises:
        EnvironmentUnable: the user's own is one of them.
    """
    from transformers.integrations.hub_kernels import load_and_register_attn_kernel

    kwargs = options.get("model_init_kwargs")
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    own = kwargs.get("attn_implementation") or options.get("attn_implementation")
    own = own if isinstance(own, str) and "/" in own else None
    anybody = bool(kwargs.get("allow_all_kernels"))
    lacking = {}
    for name in dict.fromkeys((*searched, *([own] if own else []))):
        reason = _fetched(partial(load_and_register_attn_kernel, name, None, anybody))
        if reason:
            lacking[name] = f"{name} {reason}"
    if own in lacking:
        raise EnvironmentUnable(
            f"attn_implementation: {lacking[own]}.",
            "Run once where the hub can be reached, or choose another attn_implementation.",
        )
    return lacking


def fetch_layers(
    model_dir: Path, options: Mapping[str, Any], notices: list[str], *, searched: bool
) -> dict[str, str]:
    """Fetch the kernels ``use_kernels`` puts in the place of layers; return why none can be.

    Args:
        model_dir: local directory with the model's config.
        options: the user's TRL options.
        notices: gets a sentence where the user's own ``use_kernels`` changes nothing.
        searched: whether the search may set it.
    """
    kwargs = options.get("model_init_kwargs")
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    own = bool(kwargs.get("use_kernels"))
    reason = _unloadable_layers(model_dir, kwargs) if own or searched else ""
    if own and reason:
        notices.append(f"use_kernels changes nothing here: {reason}.")
    return {LAYER_KERNELS: reason} if reason else {}


def _unloadable_layers(model_dir: Path, kwargs: Mapping[str, Any]) -> str:
    import torch
    from kernels import Mode, kernelize
    from transformers import AutoModelForCausalLM
    from transformers.integrations.hub_kernels import register_kernel_mapping_transformers

    from autotune.training.model import read_config

    config, _ = read_config(model_dir, {**kwargs, "attn_implementation": None})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    register_kernel_mapping_transformers()
    device = "cuda" if torch.version.hip is None else "rocm"
    refusal = _fetched(partial(kernelize, model, mode=Mode.TRAINING, device=device))
    if refusal:
        return f"a kernel for layers of {config.model_type} {refusal}"
    if not any("forward" in vars(module) for module in model.modules()):
        return f"no layer of {config.model_type} has a kernel for training on this device"
    return ""


def _fetched(load: Callable[[], Any]) -> str:
    """Load from the cache, else fetch first; return why it cannot be loaded from the cache."""
    import huggingface_hub.constants

    with _offline():
        missing = _refusal(load)
    if not missing:
        return ""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return missing.replace(_NO_HUB, "is not in the cache, and HF_HUB_OFFLINE is set")
    refusal = _refusal(load) or _refusal(_note_versions)
    if refusal:
        return refusal
    with _offline():
        return _refusal(load)


def _note_versions() -> None:
    """Note in the cache which version a fetched kernel is.

    ``kernels`` (0.17) fetches the commit a version stands for, and looks the version up in the
    cache when there is no hub; a snapshot of the version's branch leaves that note.
    """
    import kernels
    from huggingface_hub import HfApi

    api, cache_dir = HfApi(), os.environ.get("KERNELS_CACHE")
    for found in (kernel.repo_info for kernel in kernels.get_loaded_kernels()):
        if found is None:  # from a folder of the user's (LOCAL_KERNELS)
            continue
        for branch in api.list_repo_refs(found.repo_id, repo_type="kernel").branches:
            if branch.target_commit == found.revision:
                api.snapshot_download(
                    found.repo_id,
                    repo_type="kernel",
                    revision=branch.name,
                    cache_dir=cache_dir,
                    allow_patterns=["-"],  # no file: they are there
                )


def _refusal(load: Callable[[], Any]) -> str:
    import torch

    try:
        load()
    except _REFUSALS as error:
        chain = list(_chain(error))
        if any(words in str(e) for e in chain for words in _NO_BUILD):
            version = torch.version.cuda or torch.version.hip
            of = f"CUDA {version}" if torch.version.cuda else f"ROCm {version}"
            return f"has no build for torch {torch.__version__}, {of if version else 'CPU'}"
        if any(type(e).__name__ in _UNREACHED for e in chain) or any(
            words in str(e) for e in chain for words in _UNCACHED
        ):
            return _NO_HUB
        return f"cannot be loaded: {first_line(error)}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


@contextmanager
def _offline() -> Iterator[None]:
    """Keep huggingface_hub from the network, as in a probe; it reads this constant at each call."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
