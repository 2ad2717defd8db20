"""How the installed versions spell options, and what they have; compared explicitly, never probed.

The canonical name is the one the knob table uses. A branch is dropped from here once the oldest
supported version no longer needs it; each says which that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from autotune.core.candidate import Value
from autotune.core.job import Trainer

#: Newer spelling -> canonical one. transformers 5.23 starts to rename gradient checkpointing and
#: warns of the old name; TRL 1.16 still sets its default under the old name. The table goes when
#: TRL itself uses the new name.
RENAMED: Mapping[str, str] = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}
#: Older values of options that TRL still takes, and what it makes of them (trl/trainer/sft_config).
_RENAMED_VALUES: Mapping[str, Mapping[str, str]] = {
    "packing_strategy": {"bfd-requeue": "bfd_split"},
}
#: The transformers version that has the newer spelling.
_RENAMED_IN = "5.23"
#: Trainers in which TRL 1.15 deprecates ``use_liger_kernel`` (trl/trainer/*_trainer.py).
_NO_LIGER = (Trainer.SFT, Trainer.DPO, Trainer.KTO)


def at_least(versions: Mapping[str, str], package: str, least: str) -> bool:
    """Whether a package has at least a version; one that is not listed counts as the newest.

    Args:
        versions: installed versions by distribution name.
        package: distribution name.
        least: version; pre-releases and local builds (``2.10.0+cpu``) of it count as it.
    """
    found = versions.get(package)
    return found is None or Version(Version(found).base_version) >= Version(least)


def canonical_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options under their canonical names and values; where both are set the newer one wins.

    Args:
        options: TRL options by whatever names, their values by whatever names, the user wrote.
    """
    plain = {k: v for k, v in options.items() if k not in RENAMED}
    newer = {RENAMED[k]: v for k, v in options.items() if k in RENAMED and v is not None}
    for name, values in _RENAMED_VALUES.items():
        if name in plain:
            plain[name] = values.get(str(plain[name]), plain[name])
    return {**plain, **newer}


def canonical_choice(name: str, choice: Value, versions: Mapping[str, str]) -> Value:
    """Return the one name of a choice that the installed versions know by two.

    Args:
        name: the knob.
        choice: its choice.
        versions: installed versions by distribution name.
    """
    # Before TRL 1.15 they are two codes for one loss; goes when that is the oldest supported.
    same = at_least(versions, "trl", "1.15")
    return "nll" if name == "loss_type" and choice == "chunked_nll" and same else choice


def spelled_name(name: str, versions: Mapping[str, str]) -> str:
    """Return the name by which the installed versions want an option.

    Args:
        name: any of its names.
        versions: installed versions by distribution name.
    """
    canonical = RENAMED.get(name, name)
    if at_least(versions, "transformers", _RENAMED_IN):
        return {old: new for new, old in RENAMED.items()}.get(canonical, canonical)
    return canonical


def spelled(options: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return options as the installed versions want them written, so that none of them warns.

    Args:
        options: TRL options by whatever names; those TRL would fill in included: its own default
            of ``gradient_checkpointing`` warns too.
        versions: installed versions by distribution name.
    """
    written = canonical_options(options)
    if "loss_type" in written:
        written["loss_type"] = canonical_choice("loss_type", written["loss_type"], versions)
    kwargs = written.get("model_init_kwargs")
    if isinstance(kwargs, Mapping) and "torch_dtype" in kwargs:
        # TRL gives the loader a dtype, beside which the older name does nothing but warn
        rest = {name: value for name, value in kwargs.items() if name != "torch_dtype"}
        written["model_init_kwargs"] = rest or None
    return {spelled_name(name, versions): value for name, value in written.items()}


def unavailable(
    name: str, choice: Value, trainer: Trainer, versions: Mapping[str, str]
) -> str | None:
    """Return why the installed versions should not be given a choice of a knob, else None.

    Args:
        name: the knob.
        choice: its choice.
        trainer: the trainer it is for.
        versions: installed versions by distribution name.
    """
    # goes when TRL 2 has removed the option
    no_liger = trainer in _NO_LIGER and at_least(versions, "trl", "1.15")
    if name == "use_liger_kernel" and choice and no_liger:
        return f"TRL deprecates it for {trainer.value} since 1.15; use_kernels takes its place"
    # goes when TRL 1.15 is the oldest supported version
    selective = name == "gradient_checkpointing" and choice == "selective"
    if selective and not at_least(versions, "trl", "1.15"):
        return "TRL before 1.15 has no selective checkpointing"
    return None


def untrainable(trainer: Trainer, versions: Mapping[str, str], *, on_cpu: bool) -> str | None:
    """Return why the installed versions cannot train at all on a device, else None.

    Args:
        trainer: the trainer.
        versions: installed versions by distribution name.
        on_cpu: whether the device is the CPU.
    """
    # TRL 1.15 alone; goes when 1.16 is the oldest supported version
    only_triton = at_least(versions, "trl", "1.15") and not at_least(versions, "trl", "1.16")
    if trainer is Trainer.SFT and on_cpu and only_triton:
        return "TRL 1.15 computes the loss of sft with a Triton kernel, which no CPU runs"
    return None


def deprecated(
    trainer: Trainer, options: Mapping[str, Any], versions: Mapping[str, str]
) -> tuple[str, ...]:
    """Return one sentence for every option of the user's that the installed TRL deprecates.

    Args:
        trainer: the trainer.
        options: the user's TRL options, canonical names.
        versions: installed versions by distribution name.
    """
    found = []
    if options.get("use_liger_kernel"):
        reason = unavailable("use_liger_kernel", True, trainer, versions)
        if reason is not None:
            found.append(f"use_liger_kernel: {reason}.")
    loss = options.get("loss_type")
    if loss == "chunked_nll" and canonical_choice("loss_type", loss, versions) != loss:
        found.append("loss_type chunked_nll: since TRL 1.15 nll computes the loss the same way.")
    if options.get("pad_token"):
        found.append("pad_token: TRL deprecates it; set it in the tokenizer's own files.")
    kwargs = options.get("model_init_kwargs") or {}
    if kwargs.get("torch_dtype") is not None and "dtype" not in kwargs:
        found.append(
            "model_init_kwargs.torch_dtype does nothing beside the dtype trl gives "
            f"({options.get('dtype', 'float32')}): set dtype."
        )
    smooths = trainer is Trainer.SFT and options.get("label_smoothing_factor")
    if smooths and at_least(versions, "trl", "1.15"):
        found.append("label_smoothing_factor: TRL deprecates it for sft since 1.15.")
    return tuple(found)
