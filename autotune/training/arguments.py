"""Turns a flat mapping of TRL options into the argument objects TRL's scripts build.

Knows which dataclass owns an option; knows nothing of probes, candidates or files.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, EnvironmentUnable, nearest
from autotune.core.job import Trainer
from autotune.knobs.isolation import OVERRIDES

_CONFIGS = {
    Trainer.SFT: "SFTConfig",
    Trainer.DPO: "DPOConfig",
    Trainer.REWARD: "RewardConfig",
    Trainer.KTO: "KTOConfig",
}


@dataclass(frozen=True)
class Arguments:
    """The three argument objects a TRL script works with.

    Args:
        training: ``SFTConfig`` and its kin.
        model: TRL's ``ModelConfig``.
        owners: which object owns each option, by option name.
    """

    training: Any
    model: Any
    owners: dict[str, str]


def config_class(trainer: Trainer) -> Any:
    """Return TRL's config class of a trainer, e.g. ``SFTConfig``."""
    import trl

    return getattr(trl, _CONFIGS[trainer])


def option_owners(trainer: Trainer) -> dict[str, str]:
    """Map every option ``trl <trainer> --config`` accepts to the argument object that owns it.

    Owners are ``training``, ``model``, ``script`` and ``mixture``; when two dataclasses share a
    name the training arguments win, as in TRL's own parser.
    """
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments

    classes = {
        "mixture": DatasetMixtureConfig,
        "script": ScriptArguments,
        "model": ModelConfig,
        "training": config_class(trainer),
    }
    owners: dict[str, str] = {}
    for owner, cls in classes.items():
        owners.update({f.name: owner for f in dataclasses.fields(cls) if f.init})
    return owners


def _check_known(options: Mapping[str, Any], trainer: Trainer, owners: Mapping[str, str]) -> None:
    """Stop at an option the installed TRL does not have for this trainer.

    Raises:
        BadInput: names the trainers that do have it, or the option most like it.
    """
    unknown = next((name for name in options if name not in owners), None)
    if unknown is None:
        return
    theirs = [t.value for t in _CONFIGS if t is not trainer and unknown in option_owners(t)]
    if theirs:
        raise BadInput(
            f"trl {trainer.value} has no option {unknown!r}; it is one of {', '.join(theirs)}.",
            "Remove it, or choose another --trainer.",
        )
    raise BadInput(
        f"unknown option {unknown!r} for trl {trainer.value}{nearest(unknown, sorted(owners))}.",
        "Use the option names of the installed TRL.",
    )


def build_arguments(trainer: Trainer, options: Mapping[str, Any]) -> Arguments:
    """Build the argument objects from options that already have their final types.

    Args:
        trainer: which trainer's config class.
        options: option values by upstream name; script and mixture options are ignored here.

    Raises:
        BadInput: an option is unknown to the installed TRL.
    """
    from trl import ModelConfig

    owners = option_owners(trainer)
    _check_known(options, trainer, owners)
    mine = {"training": {}, "model": {}, "script": {}, "mixture": {}}  # type: dict[str, dict[str, Any]]
    for name, value in options.items():
        mine[owners[name]][name] = value
    return Arguments(
        training=config_class(trainer)(**mine["training"]),
        model=ModelConfig(**mine["model"]),
        owners=owners,
    )


def parse_options(trainer: Trainer, options: Mapping[str, Any]) -> dict[str, Any]:
    """Read options as TRL's own parser reads them from a YAML file, with their final types.

    Args:
        trainer: which ``trl`` command.
        options: values as written by the user (YAML scalars, or text from ``--set``).

    Returns:
        The same options with the types TRL gives them; only what the user set, no defaults.

    Raises:
        BadInput: an option is unknown or its value is refused.
        EnvironmentUnable: an option needs a package that is not installed.
    """
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, TrlParser

    owners = option_owners(trainer)
    _check_known(options, trainer, owners)
    classes = (ScriptArguments, config_class(trainer), ModelConfig, DatasetMixtureConfig)
    parser = TrlParser(classes)
    parser.exit_on_error = False
    parser.set_defaults_with_config(**dict(options))
    try:
        parsed = parser.parse_args_into_dataclasses(args=[])
    except (SystemExit, argparse.ArgumentError) as error:
        raise BadInput(f"TRL's parser refuses the config: {error}.") from error
    except ImportError as error:
        said = error.args[0] if isinstance(error, PackageNotFoundError) else error
        raise EnvironmentUnable(
            f"the config needs a package that is not installed: {str(said).splitlines()[0]}",
            "Install it, or leave the option out.",
        ) from error
    except (ValueError, TypeError) as error:
        raise BadInput(f"TRL refuses this config: {error}") from error
    by_owner = dict(zip(("script", "training", "model", "mixture"), parsed, strict=True))
    return {name: getattr(by_owner[owners[name]], name) for name in options}


def isolated(trainer: Trainer, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return options under which a trainer touches nothing outside a folder (DESIGN.md 5.10).

    Args:
        trainer: which ``trl`` command.
        options: final option values by upstream name.
        folder: the only folder it writes to.
    """
    known = option_owners(trainer)
    kept = copy.deepcopy(dict(options))  # trainers take keys out of nested ones
    for override in OVERRIDES:
        if override.option in known and (override.option in kept or override.value is not None):
            kept[override.option] = override.value
    return {**kept, "output_dir": str(folder / "trainer"), "max_steps": 1}
