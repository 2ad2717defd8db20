"""Knobs that trade memory for time: recomputing, offloading, optimizer states, the allocator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts
from autotune.knobs.knob import OFFLINE, Knob, Options, option, plain
from autotune.knobs.variables import allocator_entries, allocator_variable


def _write_checkpointing(choice: Value, facts: Facts) -> Options:
    theirs = facts.option("gradient_checkpointing_kwargs") or {}
    mine = {k: v for k, v in theirs.items() if k != "selective"}
    if choice == "none":
        # TRL refuses selective without checkpointing, so the user's own must go with it.
        kwargs = {"gradient_checkpointing_kwargs": mine or None} if "selective" in theirs else {}
        return {"gradient_checkpointing": False, **kwargs}
    if mine.get("use_reentrant"):
        mine["use_reentrant"] = False
    if choice == "selective":
        mine["selective"] = True
    if choice == "reentrant":
        mine["use_reentrant"] = True
    options: Options = {"gradient_checkpointing": True}
    if mine or theirs:
        options["gradient_checkpointing_kwargs"] = mine or None
    return options


def checkpointing_of(options: Mapping[str, Any]) -> str:
    """Return the choice of ``gradient_checkpointing`` that TRL options stand for.

    Args:
        options: TRL options; on is TRL's default.
    """
    if not options.get("gradient_checkpointing", True):
        return "none"
    kwargs = options.get("gradient_checkpointing_kwargs") or {}
    if kwargs.get("selective"):
        return "selective"
    return "reentrant" if kwargs.get("use_reentrant") else "full"


def _read_checkpointing(facts: Facts) -> Value:
    names = ("gradient_checkpointing", "gradient_checkpointing_kwargs")
    return checkpointing_of({name: facts.option(name) for name in names})


def _write_allocator(choice: Value, facts: Facts) -> Options:
    if choice == "default":
        return {}
    return {allocator_variable(facts.versions): f"{choice}:True"}


def _read_allocator(facts: Facts) -> Value:
    entries = allocator_entries(facts.job.env, facts.versions)
    expandable = str(entries.get("expandable_segments")).lower() == "true"
    return "expandable_segments" if expandable else "default"


ROWS_OF_MEMORY: tuple[Knob, ...] = (
    Knob(
        name="gradient_checkpointing",
        place="training",
        choices=("none", "full", "selective", "reentrant"),
        trainers=OFFLINE,
        help="recompute activations in the backward pass; selective keeps the attention output "
        "(SFT only), reentrant is PyTorch's older way",
        write=_write_checkpointing,
        read=_read_checkpointing,
        fixed_by=("gradient_checkpointing_kwargs",),
    ),
    Knob(
        name="activation_offloading",
        place="training",
        choices=(False, True),
        trainers=OFFLINE,
        help="keep activations in host memory between forward and backward",
        write=plain("activation_offloading"),
        read=option("activation_offloading", False),
        needs={True: ("accelerator", "memory of its own")},
    ),
    Knob(
        name="optim",
        place="training",
        choices=(
            "adamw_torch_fused",
            "adamw_torch",
            "adamw_8bit",
            "paged_adamw_8bit",
            "adafactor",
        ),
        trainers=OFFLINE,
        help="optimizer and precision of its states (--allow optimizer beyond the two adamw_torch)",
        write=plain("optim"),
        read=option("optim", "adamw_torch_fused"),
        needs={
            "adamw_8bit": ("bitsandbytes",),
            "paged_adamw_8bit": ("bitsandbytes", "accelerator"),
        },
    ),
    Knob(
        name="torch_empty_cache_steps",
        place="training",
        choices=(None, 1, 10, 50),
        trainers=OFFLINE,
        help="give cached blocks back to the device every so many updates",
        write=plain("torch_empty_cache_steps"),
        read=option("torch_empty_cache_steps"),
        needs=dict.fromkeys((1, 10, 50), ("accelerator",)),
    ),
    Knob(
        name="allocator",
        place="environment",
        choices=("default", "expandable_segments"),
        trainers=OFFLINE,
        help="PYTORCH_ALLOC_CONF (PYTORCH_CUDA_ALLOC_CONF before PyTorch 2.10): segments that "
        "grow instead of fragmenting",
        write=_write_allocator,
        read=_read_allocator,
        needs={"expandable_segments": ("accelerator",)},
    ),
    Knob(
        name="precompute_ref_log_probs",
        place="training",
        choices=(False, True),
        trainers=(Trainer.DPO, Trainer.KTO),
        help="run the reference model once before training and keep only its log-probabilities",
        write=plain("precompute_ref_log_probs"),
        read=option("precompute_ref_log_probs", False),
    ),
)
