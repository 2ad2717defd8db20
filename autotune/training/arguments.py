"""Turns a flat mapping of TRL options into the argument objects TRL's scripts build.

Knows which dataclass owns an option; knows nothing of probes, candidates or files.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, EnvironmentUnable, nearest
from autotune.core.job import Trainer
from autotune.knobs.former import FORMER, what_replaces
from autotune.knobs.isolation import OVERRIDES
from autotune.training.blame import blamed
from autotune.training.option_types import check_types

_CONFIGS = {
    Trainer.SFT: "SFTConfig",
    Trainer.DPO: "DPOConfig",
    Trainer.REWARD: "RewardConfig",
    Trainer.KTO: "KTOConfig",
}
#: What TRL's parser and the argument classes raise on values they refuse.
_REFUSALS = (ValueError, TypeError, OSError, argparse.ArgumentError, SystemExit)


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
    owners: dict[str, str] = {}
    for owner, cls in option_classes(trainer).items():
        owners.update({f.name: owner for f in dataclasses.fields(cls) if f.init})
    return owners


def option_classes(trainer: Trainer) -> dict[str, Any]:
    """Return the argument classes of ``trl <trainer>`` by owner, the one that wins last."""
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments

    return {
        "mixture": DatasetMixtureConfig,
        "script": ScriptArguments,
        "model": ModelConfig,
        "training": config_class(trainer),
    }


def _check_known(options: Mapping[str, Any], trainer: Trainer, owners: Mapping[str, str]) -> None:
    """Stop at an option the installed TRL does not have for this trainer.

    Raises:
        BadInput: names the trainers that do have it, what has taken its place, or the option most
            like it.
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
    instead = what_replaces(unknown)
    if instead is not None:
        raise BadInput(
            f"TRL no longer has the option {unknown!r}; {instead}.",
            "Write that in its place." if FORMER[unknown] else "Remove it.",
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
    owners = option_owners(trainer)
    _check_known(options, trainer, owners)
    check_types(options, owners, option_classes(trainer))
    parse = partial(_parsed, trainer)
    try:
        parsed = parse(options)
    except ImportError as error:
        said = error.args[0] if isinstance(error, PackageNotFoundError) else error
        raise EnvironmentUnable(
            f"the config needs a package that is not installed: {str(said).splitlines()[0]}",
            "Install it, or leave the option out.",
        ) from error
    except _REFUSALS as error:
        name = blamed(options, parse, error, _REFUSALS)
        what = "this config" if name is None else f"{name} {options[name]!r}"
        raise BadInput(f"TRL refuses {what}: {str(error).rstrip('.')}.") from error
    return {name: getattr(parsed[owners[name]], name) for name in options}


def _parsed(trainer: Trainer, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument objects TRL's parser makes of options, by owner."""
    from trl import TrlParser

    classes = option_classes(trainer)
    parser = TrlParser(tuple(classes.values()))
    parser.exit_on_error = False
    parser.set_defaults_with_config(**dict(options))
    return dict(zip(classes, parser.parse_args_into_dataclasses(args=[]), strict=True))


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
        if override.option in known and override.concerns(kept):
            kept[override.option] = override.value
    return {**kept, "output_dir": str(folder / "trainer"), "max_steps": 1}
