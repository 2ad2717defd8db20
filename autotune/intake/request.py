"""What a user asks of a run, in their own words; checked and turned into a job elsewhere."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput
from autotune.core.secrets import HIDDEN, hide_text, without_secrets

DEFAULT_TRIALS = 16


@dataclass(frozen=True)
class Request:
    """What a user asks of ``autotune run``; names and units as on the command line.

    Args:
        model: hub id, folder or ``config.json``; None takes it from the config, ``demo`` is the
            embedded one. Without a model and rows the job is the demo's.
        dataset: hub id, file or folder; None and ``demo`` as for ``model``.
        dataset_config: the hub data set's configuration.
        dataset_train_split: split trained on; None is ``train`` or the config's.
        dataset_test_split: split evaluated on.
        trainer: TRL trainer.
        config: TRL YAML file of the user.
        space: name or file of a search space; None is the trainer's own.
        device: ``auto``, ``cpu`` or ``cuda[:i]``.
        memory: budget such as ``22GiB``; None is what is free on the device.
        headroom: share kept free, such as ``5%``; None is 5 %, and 15 % of memory that a GPU
            shares with the system.
        objective: ``throughput``, ``memory`` or ``length``.
        min_retention: least share of reference label tokens kept.
        effective_batch: sequences per update; None keeps the config's.
        trials: most probes of the search.
        timeout: longest search, such as ``10m``; checking the winner may take half as long again.
            None without a bound.
        probe_timeout: longest probe, such as ``10m``; None follows what is expected of each probe.
        allow: classes of change beyond neutral and data.
        weights: ``random`` or ``real``.
        set_options: TRL options that replace the config's; knobs among them are not searched.
        storage: Optuna storage URL; None keeps a database in the run's folder.
        resume: go on with a run's folder.
        seed: seed of every random choice.
        out: the run's folder; None makes ``autotune-runs/<time>-<model>``.
        force: replace a run that is already in the folder.
        inputs: folder Python objects were written to, moved into the run's folder.
        given: fields that were asked for by name: a resumed run holds them to what it was started
            with even where they have their default.
    """

    model: str | None = None
    dataset: str | None = None
    dataset_config: str | None = None
    dataset_train_split: str | None = None
    dataset_test_split: str | None = None
    trainer: str = "sft"
    config: str | None = None
    space: str | None = None
    device: str = "auto"
    memory: str | None = None
    headroom: str | None = None
    objective: str = "throughput"
    min_retention: str = "99%"
    effective_batch: int | None = None
    trials: int = DEFAULT_TRIALS
    timeout: str | None = None
    probe_timeout: str | None = None
    allow: tuple[str, ...] = ()
    weights: str = "random"
    set_options: Mapping[str, Any] = field(default_factory=dict)
    storage: str | None = None
    resume: bool = False
    seed: int = 0
    out: str | None = None
    force: bool = False
    inputs: str | None = None
    given: tuple[str, ...] = ()


#: Fields that may name a local path.
_PATHS = ("model", "dataset", "config", "space")
REQUEST_FILE = "request.json"
#: Fields a resumed run may change; every other one belongs to the study.
_MAY_CHANGE = ("trials", "timeout", "probe_timeout", "resume", "out", "force", "inputs", "given")


#: What a field of a type takes, in words.
_KINDS: dict[Any, str] = {
    int: "a whole number",
    bool: "True or False",
    tuple: "a list of words",
    Mapping: "a dictionary",
}


def check_types(request: Request) -> None:
    """Stop at a value from Python that is not of the type its field is declared with.

    Raises:
        BadInput: names the field, what was found and what is expected.
    """
    for name, hint in typing.get_type_hints(Request).items():
        value = getattr(request, name)
        origin = typing.get_origin(hint)
        kind = hint if origin in (None, types.UnionType) else origin
        listed = kind is tuple and isinstance(value, list | set | frozenset)
        path = name in _PATHS and isinstance(value, os.PathLike)
        if not (isinstance(value, kind) or listed or path):
            plain = next((k for k in typing.get_args(hint) if k in _KINDS), kind)
            words = _KINDS.get(plain, "text, as on the command line")
            raise BadInput(f"{name} is {value!r}, expected {words}.")


def with_absolute_paths(request: Request) -> Request:
    """Return a request whose local paths mean the same from any folder.

    Args:
        request: as asked; names that are no local path stay as they are.
    """
    changes: dict[str, Any] = {}
    for name in _PATHS:
        value = getattr(request, name)
        try:
            local = value is not None and Path(value).expanduser().exists()
        except (OSError, ValueError):
            continue
        if local:
            changes[name] = str(Path(value).expanduser().resolve())
    return dataclasses.replace(request, **changes)


def moved_inputs(request: Request, out_dir: Path) -> Request:
    """Move Python objects that were written for a run into its folder, so that they last.

    Args:
        request: its ``inputs`` names the folder they were written to; None when there are none.
        out_dir: the run's folder.
    """
    if request.inputs is None:
        return request
    target = out_dir.resolve() / "input"
    shutil.move(request.inputs, target)
    moved: dict[str, Any] = {
        name: str(target / Path(value).relative_to(request.inputs))
        for name in ("model", "dataset")
        if (value := getattr(request, name)) is not None
        and Path(value).is_relative_to(request.inputs)
    }
    return dataclasses.replace(request, inputs=None, **moved)


def save_request(request: Request, out_dir: Path) -> None:
    """Keep a request in its run's folder, so that ``--resume --out`` is enough to go on.

    Secrets are not kept: those of options are not needed, a storage's has to be given again.
    """
    kept = _publishable(dataclasses.asdict(request))
    del kept["given"]
    text = json.dumps(kept, indent=1, default=str)
    (out_dir / REQUEST_FILE).write_text(text + "\n", encoding="utf-8")


def resumed_request(request: Request, out_dir: Path) -> Request:
    """Return the request a folder was started with, with the limits of the new one.

    Args:
        request: what is asked now; fields left at their default are taken from the folder.
        out_dir: the folder to go on with.

    Raises:
        BadInput: the folder holds no request, or one that differs in what belongs to the study.
    """
    file = out_dir / REQUEST_FILE
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"there is no run to resume at {out_dir}: no {REQUEST_FILE} in it.",
            "Name the folder of a run with --out.",
        ) from error
    except ValueError as error:
        raise BadInput(
            f"{file} is damaged ({error}), so the run cannot go on.",
            "Its result can still be emitted; start again with another --out.",
        ) from error
    plain = dataclasses.asdict(Request())
    if not isinstance(stored, dict) or not isinstance(stored.get("set_options", {}), dict):
        raise BadInput(f"{file} is not the request of a run.", "Choose another --out.")
    stored = {**plain, **stored}
    kept = _publishable(stored)  # runs of older versions kept everything
    changes: dict[str, Any] = {}
    asked = dataclasses.asdict(request)
    for name, value in _publishable(asked).items():
        before = kept[name]
        named = value != plain[name] or name in request.given
        if name in _MAY_CHANGE:
            changes[name] = value if named else before
        elif named and value != before:
            raise BadInput(
                f"the run in {out_dir} was started {_with(name, before)}, "
                f"not {_with(name, value)}.",
                "Resume it as it was started, or choose another --out.",
            )
        else:
            changes[name] = before
    if HIDDEN in str(changes["storage"]):
        storage = request.storage or stored["storage"]
        if HIDDEN in storage:
            raise BadInput(
                f"the run in {out_dir} has a --storage with a password, which is not kept.",
                "Give --storage again.",
            )
        changes["storage"] = storage
    return Request(**{**changes, "resume": True, "out": request.out, "force": False})


def _with(name: str, value: Any) -> str:
    option = "--set" if name == "set_options" else f"--{name.replace('_', '-')}"
    if isinstance(value, Mapping):
        value = " ".join(
            f"{key}={one if isinstance(one, str) else json.dumps(one, default=str)}"
            for key, one in value.items()
        )
    elif isinstance(value, tuple):
        value = ",".join(value)
    return f"without {option}" if value in (None, "") else f"with {option} {value}"


def _publishable(request: dict[str, Any]) -> dict[str, Any]:
    options, _ = without_secrets(request["set_options"])
    storage = request["storage"] and hide_text(request["storage"])
    allow = tuple(sorted(request["allow"]))
    return {**request, "set_options": options, "storage": storage, "allow": allow}
