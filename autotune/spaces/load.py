"""Finds and reads search-space files, and says where a mistake in one is.

A misspelt knob is answered with file, line and the nearest valid name.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from autotune.core.errors import BadInput, nearest
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME
from autotune.knobs.knob import Knob
from autotune.spaces.schema import Space


def spaces_dir() -> Path:
    """Return the folder of the shipped spaces, in a checkout and in an installed wheel alike."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "search_spaces"
    return installed if installed.is_dir() else package.parent / "search_spaces"


def list_spaces() -> list[tuple[Path, Space]]:
    """Return the shipped spaces with their files, by name."""
    return [(p, read_space(p)) for p in sorted(spaces_dir().glob("*.yaml"))]


def find_space(name: str) -> Path:
    """Return the file of a space.

    Args:
        name: the name of a shipped space, or a path to a file.

    Raises:
        BadInput: there is neither.
    """
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml"):
        if path.is_file():
            return path
        raise BadInput(f"there is no search space file {name}.")
    shipped = spaces_dir() / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    names = [p.stem for p in sorted(spaces_dir().glob("*.yaml"))]
    raise BadInput(
        f"unknown search space {name!r}{nearest(name, names)}.",
        f"Shipped spaces are {', '.join(names)}; a path ending in .yaml is read as a file.",
    )


def space_for(trainer: Trainer, name: str | None) -> Space:
    """Return the space a job is searched over.

    Args:
        trainer: the job's.
        name: what the user named, as for `find_space`; None takes the trainer's own.

    Raises:
        BadInput: there is no such space, it cannot be used, or it is for another trainer.
    """
    space = read_space(find_space(name or trainer.value))
    if not space.suits(trainer):
        raise BadInput(
            f"the space {space.name!r} is for {space.trainer}, the job is {trainer.value}.",
            "Choose another --space or --trainer.",
        )
    return space


def read_space(path: Path) -> Space:
    """Read and check a search-space file.

    Raises:
        BadInput: it is not YAML, not of this shape, or names an unknown knob or choice; says the
            file and the line.
    """
    try:
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the search space {path} cannot be read: {error}") from error
    except YAMLError as error:
        line = str(error).strip().splitlines()[-1].strip()
        raise BadInput(f"the search space {path} is not YAML: {line}") from error
    if not isinstance(document, CommentedMap):
        raise BadInput(f"the search space {path} holds no mapping.", "Start from a shipped one.")
    _check_knobs(path, document)
    try:
        return Space.model_validate(_plain(document))
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(p) for p in first["loc"] if not str(p).endswith("]") and p != "Dimension"]
        raise BadInput(
            f"{path}:{_line(document, where)}: {'.'.join(where)}: {first['msg']}.",
            "`autotune spaces show sft` prints a complete example.",
        ) from error


def space_hash(space: Space) -> str:
    """Return twelve hex digits that are equal exactly when two spaces try the same."""
    text = space.model_dump_json(exclude={"describe", "name"})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check_knobs(path: Path, document: Any) -> None:
    """Check names, choices and conditions against the knob table.

    Raises:
        BadInput: one of them is unknown; says the line and the nearest.
    """
    knobs = document.get("knobs")
    if not isinstance(knobs, CommentedMap):
        return
    for name, dimension in knobs.items():
        at = f"{path}:{knobs.lc.key(name)[0] + 1}"
        if name not in BY_NAME:
            raise BadInput(
                f"{at}: unknown knob {name!r}{nearest(str(name), sorted(BY_NAME))}.",
                f"Knobs are {', '.join(BY_NAME)}.",
            )
        _check_trainer(at, BY_NAME[name], document.get("trainer"))
        conditional = isinstance(dimension, dict)
        _check_choices(at, BY_NAME[name], dimension.get("choices") if conditional else dimension)
        conditions = dimension.get("when") if conditional else None
        for other, allowed in conditions.items() if isinstance(conditions, dict) else ():
            if other not in knobs:
                raise BadInput(
                    f"{at}: {name} depends on {other!r}, which is not a knob of this space"
                    f"{nearest(str(other), [str(k) for k in knobs])}."
                )
            if other in BY_NAME:
                _check_choices(at, BY_NAME[other], allowed)
        _check_circle(at, name, knobs)


def _check_trainer(at: str, row: Knob, trainer: object) -> None:
    names = [t.value for t in row.trainers]
    if trainer in [t.value for t in Trainer] and trainer not in names:
        raise BadInput(f"{at}: {trainer} has no {row.name}; it is a knob of {', '.join(names)}.")


def _check_choices(at: str, row: Knob, choices: object) -> None:
    if choices is None or choices == "auto":
        return
    if not isinstance(choices, list) or not choices:
        raise BadInput(
            f"{at}: {row.name} is {_plain(choices)!r}, expected auto or a list of choices.",
            "`autotune spaces show sft` prints a complete example.",
        )
    for choice in _plain(choices):
        if row.accepts(choice):
            continue
        if row.choices is None:
            raise BadInput(
                f"{at}: {row.name} cannot be {choice!r}, expected a positive whole number or null."
            )
        known = ["null" if c is None else str(c).lower() for c in row.choices]
        raise BadInput(
            f"{at}: {row.name} cannot be {choice!r}, expected {', '.join(known)}"
            f"{nearest(str(choice), known) or '.'}"
        )


def _check_circle(at: str, name: str, knobs: CommentedMap) -> None:
    """Check that no knob depends on itself, by way of others or not."""
    reached, left = set(), [name]
    while left:
        dimension = knobs.get(left.pop())
        conditions = dimension.get("when") if isinstance(dimension, dict) else None
        for other in conditions if isinstance(conditions, dict) else ():
            if other == name:
                raise BadInput(f"{at}: {name} depends on itself.", "Remove one of the conditions.")
            if other not in reached:
                reached.add(other)
                left.append(other)


def _line(document: Any, where: list[str]) -> int:
    """Return the line of the deepest key that exists."""
    line = 1
    for key in where:
        if not isinstance(document, CommentedMap) or key not in document:
            break
        line = document.lc.key(key)[0] + 1
        document = document[key]
    return line


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # ruamel keeps how a number was written in a subclass
    return value
