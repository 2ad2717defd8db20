"""Finds and reads search-space files: shipped ones by name, any other by its path."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from autotune.core.errors import BadInput, nearest
from autotune.core.job import Trainer
from autotune.spaces.check import check_space
from autotune.spaces.document import read_document
from autotune.spaces.schema import Space

#: Files with these endings are spaces; JSON is YAML too.
_ENDINGS = (".yaml", ".yml", ".json")


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
    if path.suffix.lower() in _ENDINGS:
        if path.is_file():
            return path
        what = "is a folder" if path.is_dir() else "does not exist"
        raise BadInput(f"the search space file {name} {what}.")
    shipped = {p.stem: p for p in sorted(spaces_dir().glob("*.yaml"))}
    if name in shipped:
        return shipped[name]
    raise BadInput(
        f"unknown search space {name!r}{nearest(name, list(shipped))}.",
        f"Shipped spaces are {', '.join(shipped)}; a path ending in .yaml is read as a file.",
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
    document = read_document(path)
    check_space(document)
    return Space.model_validate(document.value)


def space_hash(space: Space) -> str:
    """Return twelve hex digits that are equal exactly when two spaces try the same.

    Their names, and the order in which knobs and choices are written, do not count.
    """
    tried = {
        name: [_in_order(d.choices), {other: _in_order(c) for other, c in d.when.items()}]
        for name, d in space.dimensions().items()
    }
    return hashlib.sha256(json.dumps(tried, sort_keys=True).encode()).hexdigest()[:12]


def _in_order(choices: object) -> object:
    return sorted(map(json.dumps, choices)) if isinstance(choices, list) else choices
