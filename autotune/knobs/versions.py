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

#: Newer spelling -> canonical one. transformers 5.24 starts to rename gradient checkpointing and
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
_RENAMED_IN = "5.24"
#: Trainers in which TRL 1.16 deprecates ``use_liger_kernel`` (trl/trainer/*_trainer.py).
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
        options: TRL options by whatever name the user wrote.
    """
    plain = {k: v for k, v in options.items() if k not in RENAMED}
    newer = {RENAMED[k]: v for k, v in options.items() if k in RENAMED and v is not None}
    for name, values in _RENAMED_VALUES.items():
        if name in plain:
            plain[name] = values.get(str(plain[name]), plain[name])
    return {**plain, **newer}


def spelled(options: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return options as the installed versions want them written, so that none of them warns.

    Args:
        options: TRL options under their canonical names, those TRL would fill in included: its
            own default of ``gradient_checkpointing`` warns too.
        versions: installed versions by distribution name.
    """
    written = dict(options)
    if at_least(versions, "trl", "1.16") and written.get("loss_type") == "chunked_nll":
        written["loss_type"] = "nll"  # goes when TRL 1.16 is the oldest supported version
    if at_least(versions, "transformers", _RENAMED_IN):
        newer = {old: new for new, old in RENAMED.items()}
        written = {newer.get(name, name): value for name, value in written.items()}
    return written


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
    no_liger = trainer in _NO_LIGER and at_least(versions, "trl", "1.16")
    if name == "use_liger_kernel" and choice and no_liger:
        return f"TRL 1.16 deprecates it for {trainer.value}; use_kernels takes its place"
    if name == "use_kernels" and choice and not at_least(versions, "transformers", "5.4"):
        # trl/trainer/utils.py, create_model_from_path; goes when transformers 5.4 is the oldest
        return "transformers before 5.4 cannot load the hub's kernels"
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
    if at_least(versions, "trl", "1.16") and options.get("loss_type") == "chunked_nll":
        found.append("loss_type chunked_nll: since TRL 1.16 nll computes the loss the same way.")
    return tuple(found)
