"""Checks that every key of a config is one TRL has, in one answer for all that are not.

Looks at names and at values that were renamed; what a value means is TRL's parser's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from autotune.core.errors import BadInput, nearest
from autotune.core.job import Trainer
from autotune.knobs.former import FORMER, FORMER_ENTRY_KEYS, FORMER_VALUES, what_replaces


@dataclasses.dataclass(frozen=True)
class Unknown:
    """One key, or one value, that TRL does not have.

    Args:
        name: the key as the user finds it, ``datasets[0].weight`` where it is in an entry.
        sentence: what is wrong, as a sentence of its own.
        remedy: what to do.
        brief: both in a few words, for a list.
    """

    name: str
    sentence: str
    remedy: str
    brief: str


def require_known(
    trainer: Trainer,
    options: Mapping[str, Any],
    owners: Mapping[Trainer, Iterable[str]],
    entries: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Stop at keys the installed TRL does not have for this trainer.

    Args:
        trainer: which ``trl`` command.
        options: the user's options by name.
        owners: by trainer, the options it has.
        entries: entries of the ``datasets:`` block.

    Raises:
        BadInput: names every such key and, for each, the trainers that have it, what has taken its
            place, or the key most like it.
    """
    mine = sorted(owners[trainer])
    found = [_option(name, trainer, owners) for name in options if name not in mine]
    found += [
        _renamed(name, value, FORMER_VALUES[name][value])
        for name, value in options.items()
        if isinstance(value, str) and name in mine and value in FORMER_VALUES.get(name, {})
    ]
    for at, entry in enumerate(entries):
        known = _entry_keys()
        found += [_entry(str(key), at, known) for key in entry if key not in known]
    if len(found) == 1:
        raise BadInput(found[0].sentence, found[0].remedy)
    if found:
        lines = "".join(f"\n  - {one.name}: {one.brief}" for one in found)
        raise BadInput(
            f"trl {trainer.value} does not know {len(found)} keys or values of this config:{lines}",
            "Change or remove each of them.",
        )


def _option(name: str, trainer: Trainer, owners: Mapping[Trainer, Iterable[str]]) -> Unknown:
    theirs = [t.value for t, names in owners.items() if t is not trainer and name in names]
    if theirs:
        among = ", ".join(theirs)
        return Unknown(
            name,
            f"trl {trainer.value} has no option {name!r}; it is one of {among}.",
            "Remove it, or choose another --trainer.",
            f"an option of {among}",
        )
    instead = what_replaces(name)
    if instead is not None:
        return Unknown(
            name,
            f"TRL no longer has the option {name!r}; {instead}.",
            "Write that in its place." if FORMER[name] else "Remove it.",
            instead,
        )
    like = nearest(name, sorted(owners[trainer]))
    return Unknown(
        name,
        f"unknown option {name!r} for trl {trainer.value}{like}.",
        "Use the option names of the installed TRL.",
        f"no option of TRL{like}",
    )


def _renamed(name: str, value: str, instead: str) -> Unknown:
    return Unknown(
        f"{name}: {value}",
        f"{name} is {value!r}, which TRL now calls {instead!r}.",
        f"Write {name}: {instead}.",
        f"now called {instead}",
    )


def _entry(key: str, at: int, known: list[str]) -> Unknown:
    place = FORMER_ENTRY_KEYS.get(key)
    hint = f"; {place} takes its place" if place else nearest(key, known)
    return Unknown(
        f"datasets[{at}].{key}",
        f"an entry of the datasets: block has the key {key!r}, which TRL does not know{hint}.",
        f"Its keys are {', '.join(known)}.",
        f"no key of an entry{hint}",
    )


def _entry_keys() -> list[str]:
    """Return the keys of an entry: TRL hands them to ``trl.scripts.utils.DatasetConfig``."""
    from trl.scripts.utils import DatasetConfig

    return [field.name for field in dataclasses.fields(DatasetConfig)]
