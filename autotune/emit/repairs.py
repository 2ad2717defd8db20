"""Values of the user's that cannot stay: TRL refuses them, or they undo what was measured.

Pure. Probes replace some options so as to measure one thing (`autotune.knobs.isolation`); where
training with them would be another thing than was measured, the file says what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.environment import Device
from autotune.core.result import TrialRecord
from autotune.emit import fields
from autotune.emit.values import typed

Repairs = dict[str, tuple[Any, str]]


def repairs(asked: Mapping[str, Any], trial: TrialRecord, device: Device) -> Repairs:
    """Return what takes the place of options that cannot stay, each with the reason.

    Args:
        asked: what the user asked for.
        trial: the trial that is emitted.
        device: where it was measured.
    """
    found: Repairs = {
        name: ("no", "YAML reads a bare no as false, which TRL refuses")
        for name in fields.STRATEGIES
        if asked.get(name) is False
    }
    if trial.pretruncate_tokens is not None and typed(asked.get("assistant_only_loss")):
        found["assistant_only_loss"] = (False, "the written rows carry their labels")
    if typed(asked.get("auto_find_batch_size")):
        reason = "it halves the batch when memory runs out, which changes what an update learns"
        found["auto_find_batch_size"] = (False, reason)
    if device.kind != "cpu" and typed(asked.get("use_cpu")):
        found["use_cpu"] = (False, f"{device.label} is what was measured")
    return found


def launcher_repairs(options: Mapping[str, Any]) -> Repairs:
    """Return the same of keys for ``accelerate launch``, which reach a trainer past its options.

    Args:
        options: what is about to be emitted.
    """
    found: Repairs = {}
    precision = next((n for n in ("fp16", "bf16") if typed(options.get(n))), "no")
    # transformers 5.24 (training_args.py) takes the launcher's where neither option is set
    if options.get("mixed_precision") not in (None, precision):
        found["mixed_precision"] = (precision, "the precision that was measured")
    compiles = str(options.get("dynamo_backend") or "no").lower() != "no"
    if compiles and not typed(options.get("torch_compile")):
        found["dynamo_backend"] = ("no", "no compiled model was measured")
    return found
