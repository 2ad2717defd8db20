"""Every difference between what the user wrote and what is emitted, each with its reason.

Compares values; does not decide any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.result import Result
from autotune.emit import fields
from autotune.emit.location import AS_GIVEN, Location
from autotune.emit.values import same_value, typed

APART = "apart from the file"
TUNED = "tuned"
NEWER_NAME = "as the installed versions want it written"
#: TRL's own names of the two splits (``trl.ScriptArguments``).
TRL_SPLITS = {"dataset_train_split": "train", "dataset_test_split": "test"}


@dataclass(frozen=True)
class Change:
    """One key of the user's configuration that is emitted with another value.

    Args:
        name: the key; ``env.NAME`` for an environment variable.
        old: what the user wrote; None when they did not write it.
        new: what is emitted; None when the key goes.
        reason: why, in a few words.
        written: whether the user wrote the key.
        kept: whether the key is emitted.
        was: the key the user wrote it under; empty when it is the same.
    """

    name: str
    old: Any
    new: Any
    reason: str
    written: bool
    kept: bool = True
    was: str = ""


def _same_place(written: Any, meant: str) -> bool:
    return written == meant or (
        isinstance(written, str) and str(Path(written).expanduser().absolute()) == meant
    )


def model_change(own: dict[str, Any], model: str) -> tuple[Change, ...]:
    """Say whether the model is another than in the user's file.

    Args:
        own: the user's file.
        model: hub id or absolute path that is emitted.
    """
    written = own.get("model_name_or_path")
    if _same_place(written, model):
        return ()
    reason = f"given {APART}" if own else "given"
    return (Change("model_name_or_path", written, model, reason, written is not None),)


def location_changes(own: dict[str, Any], location: Location, result: Result) -> tuple[Change, ...]:
    """List the keys that say where the rows are and differ from the user's file.

    Args:
        own: the user's file.
        location: where the emitted configuration finds its rows.
        result: the run.
    """
    changes = []
    as_given = location.reason == AS_GIVEN
    reason = (f"given {APART}" if own else "given") if as_given else location.reason
    for name, value in location.options.items():
        known = own.get(name)
        if not (_same_place(known, value) if name == "dataset_name" else known == value):
            changes.append(Change(name, known, value, reason, name in own))
    if as_given and result.job.dataset.blocks is not None:
        return tuple(changes)
    # A name beside a block is ignored with a warning, a split's name beside it is a KeyError.
    for name in fields.LOCATION_FIELDS:
        harmless = {None, TRL_SPLITS.get(name)}
        if name in own and name not in location.options and _hashable(own[name]) not in harmless:
            changes.append(Change(name, own[name], None, reason, True, kept=False))
    return tuple(changes)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | None) else repr(value)


def option_changes(
    own: dict[str, Any],
    options: dict[str, Any],
    reasons: dict[str, str],
    renamed: Mapping[str, str],
) -> tuple[Change, ...]:
    """List the options that differ from the user's file.

    Args:
        own: the user's file.
        options: options that are emitted.
        reasons: why an option has its value; what is not in it was given apart from the file.
        renamed: by key of the user's file, the name that takes its place.
    """
    former = {new: old for old, new in renamed.items() if new not in own}
    changes = [
        Change(old, own[old], None, f"{new} is its newer name", True, kept=False)
        for old, new in renamed.items()
        if new in own
    ]
    for name, meant in options.items():
        value, was = typed(meant), former.get(name, "")
        written = was or name
        same = written in own and same_value(own[written], value)
        if same and not was:
            continue
        reason = reasons.get(name, f"given {APART}" if own else "given")
        reason = NEWER_NAME if same else reason
        changes.append(Change(name, own.get(written), value, reason, written in own, was=was))
    return tuple(changes)


def env_changes(
    written: Mapping[str, str], env: Mapping[str, str], tuned: Mapping[str, str]
) -> tuple[Change, ...]:
    """List the environment variables that differ from those in the user's file.

    Args:
        written: variables of the user's file.
        env: variables that are emitted.
        tuned: variables of the winner.
    """
    reason = TUNED if tuned else "given"
    return tuple(
        Change(f"env.{name}", written.get(name), value, reason, written=name in written)
        for name, value in env.items()
        if written.get(name) != value
    )
