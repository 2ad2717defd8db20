"""Turns a flat mapping of TRL options into the argument objects TRL's scripts build.

Knows which dataclass owns an option; knows nothing of probes, candidates or files.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, EnvironmentUnable
from autotune.core.job import Trainer
from autotune.knobs.isolation import LAUNCH_FIELDS, OVERRIDES
from autotune.training.blame import blamed
from autotune.training.known import require_known
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


def require_options(
    trainer: Trainer, options: Mapping[str, Any], entries: Iterable[Mapping[str, Any]] = ()
) -> None:
    """Check that the installed TRL has every option, and every key of ``datasets:`` entries.

    Args:
        trainer: which ``trl`` command.
        options: the user's options by name.
        entries: entries of the ``datasets:`` block.

    Raises:
        BadInput: names all it does not have.
    """
    require_known(trainer, options, {kind: option_owners(kind) for kind in _CONFIGS}, entries)


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
    require_options(trainer, options)
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
    require_options(trainer, options)
    check_types(options, owners, option_classes(trainer))
    parse = partial(_parsed, trainer)
    try:
        parsed = parse(options)
    except ImportError as error:
        raise _lacks_package(error) from error
    except _REFUSALS as error:
        name = blamed(options, parse, error, _REFUSALS)
        what = "this config" if name is None else f"{name} {options[name]!r}"
        raise BadInput(f"TRL refuses {what}: {str(error).rstrip('.')}.") from error
    return {name: getattr(parsed[owners[name]], name) for name in options}


def parse_file(trainer: Trainer, file: Path, arguments: Sequence[str]) -> None:
    """Read a YAML file as ``trl <trainer> --config`` does: options, environment, rows and model.

    Args:
        trainer: which ``trl`` command.
        file: the YAML.
        arguments: what stands behind it on the command line.

    Raises:
        BadInput: TRL refuses it, or hands a key to a launcher that has no such option.
        EnvironmentUnable: it needs a package that is not installed.
    """
    script = import_module(f"trl.scripts.{trainer.value}")
    parser = script.make_parser()
    parser.exit_on_error = False
    try:
        *_, left = parser.parse_args_and_config(
            ["--config", str(file), *arguments], return_remaining_strings=True
        )
    except ImportError as error:
        raise _lacks_package(error) from error
    except _REFUSALS as error:
        raise BadInput(f"TRL refuses {file.name}: {str(error).rstrip('.')}.") from error
    names = [text.removeprefix("--") for text in left if text.startswith("--")]
    unknown = [name for name in names if name not in LAUNCH_FIELDS]
    if unknown:
        raise BadInput(f"TRL takes none of {', '.join(unknown)} from {file.name}.")


def _lacks_package(error: ImportError) -> EnvironmentUnable:
    said = error.args[0] if isinstance(error, PackageNotFoundError) else error
    return EnvironmentUnable(
        f"the config needs a package that is not installed: {str(said).splitlines()[0]}",
        "Install it, or leave the option out.",
    )


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
