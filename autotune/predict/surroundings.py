"""What libraries do otherwise while a trainer is run on fake tensors, on whatever device."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from autotune.predict.patching import replaced


@contextlib.contextmanager
def modules_move_in_place() -> Iterator[None]:
    """Let ``Module.to`` and its kin write into the parameters there are.

    torch swaps the parameters of modules that hold fake tensors, which it refuses where anything
    refers to them weakly; what it does with real ones, ``param.data = ...``, needs no swap.
    Source: ``torch/nn/modules/module.py``, ``Module._apply`` (torch 2.13).
    """

    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        if recurse:
            for child in self.children():
                child._apply(fn)
        with torch.no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    _write_into(parameter, fn)
        self._buffers.update({k: b if b is None else fn(b) for k, b in self._buffers.items()})
        return self

    with replaced(torch.nn.Module, "_apply", apply):
        yield


def _write_into(parameter: Any, fn: Any) -> None:
    moved = fn(parameter)
    if moved is not parameter:
        parameter.data = moved
    if parameter.grad is not None:
        parameter.grad = fn(parameter.grad)


@contextlib.contextmanager
def weights_without_values() -> Iterator[None]:
    """Let TRL fingerprint a reference that has no values (``precompute_ref_log_probs``)."""
    from trl.trainer import dpo_trainer, kto_trainer

    def fingerprint(_: Any) -> str:
        return "traced"

    with (
        replaced(dpo_trainer, "hash_module", fingerprint),
        replaced(kto_trainer, "hash_module", fingerprint),
    ):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' remarks about a run nobody waits for to themselves."""
    import datasets
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), datasets.utils.is_progress_bar_enabled()
    logging.set_verbosity_error()
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
        if bars:
            datasets.enable_progress_bars()
