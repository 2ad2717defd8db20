"""Reads the YAML that ``trl <trainer> --config`` reads, as TRL would.

The counterpart of trl_yaml.py. Splits the file into model, data set, environment and options; what
an option means is TRL's parser's business, later, in the measuring process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource

#: Keys that name the data set instead of being options of the trainer.
_DATASET_KEYS = (
    "dataset_name",
    "dataset_config",
    "dataset_train_split",
    "dataset_test_split",
    "datasets",
)


@dataclass(frozen=True)
class UserConfig:
    """A TRL YAML file, taken apart.

    Args:
        text: the file as written.
        model: ``model_name_or_path``, None when the file has none.
        dataset: where the rows come from, None when the file does not say.
        env: the ``env:`` block.
        options: everything else, as YAML gave it.
        repeated: keys that are there more than once; the last one counts.
    """

    text: str
    model: str | None
    dataset: DatasetSource | None
    env: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    repeated: tuple[str, ...] = ()


def read_user_config(path: Path) -> UserConfig:
    """Read a TRL YAML file.

    Args:
        path: the file given to ``--config``.

    Raises:
        BadInput: it is missing, is not YAML, or does not hold a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the config {path} cannot be read: {error}") from error
    return parse_user_config(text, str(path))


def parse_user_config(text: str, name: str) -> UserConfig:
    """Take the text of a TRL YAML file apart.

    Args:
        text: the file's content.
        name: its name, for errors.

    Raises:
        BadInput: it is not YAML or does not hold a mapping.
    """
    try:
        document = yaml.safe_load(text)  # what TRL reads it with
        repeated = _repeated(yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise _not_yaml(name, error) from error
    if not isinstance(document, dict):
        raise BadInput(
            f"the config {name} holds no mapping.", "It must be what `trl sft --config` reads."
        )
    env = document.pop("env", None) or {}
    if not isinstance(env, dict):
        raise BadInput(f"`env` in {name} is not a mapping of variable names to values.")
    model = document.pop("model_name_or_path", None)
    found = {k: document.pop(k) for k in _DATASET_KEYS if k in document}
    return UserConfig(
        text=text,
        model=None if model is None else str(model),
        dataset=_source(found, name),
        env={str(k): str(v) for k, v in env.items()},
        options={str(k): v for k, v in document.items()},
        repeated=repeated,
    )


def _repeated(root: yaml.Node | None) -> tuple[str, ...]:
    """Return the keys a mapping has more than once; YAML readers take the last."""
    if not isinstance(root, yaml.MappingNode):
        return ()
    counts = Counter(str(key.value) for key, _ in root.value)
    return tuple(key for key, count in counts.items() if count > 1)


def _not_yaml(name: str, error: yaml.YAMLError) -> BadInput:
    """Say what a YAML reader stumbled over, and where."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return BadInput(f"the config {name} is not YAML: {' '.join(str(error).split())}.")
    mark = error.problem_mark
    tab = mark.buffer is not None and mark.buffer[mark.pointer : mark.pointer + 1] == "\t"
    return BadInput(
        f"the config {name} is not YAML: {error.problem} on line {mark.line + 1}, column "
        f"{mark.column + 1}.",
        "Put spaces where the tab is." if tab else None,
    )


def _source(found: dict[str, Any], name: str) -> DatasetSource | None:
    blocks = found.get("datasets")
    if blocks is not None and not (
        isinstance(blocks, list) and all(isinstance(b, dict) and "path" in b for b in blocks)
    ):
        raise BadInput(f"`datasets` in {name} is not a list of blocks with a `path` each.")
    for key in ("dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split"):
        if not isinstance(found.get(key), str | None):
            raise BadInput(f"`{key}` in {name} is {found[key]!r}, expected text.")
    path = blocks[0]["path"] if blocks else found.get("dataset_name")
    if path is None:
        return None
    return DatasetSource(
        path=str(path),
        config=found.get("dataset_config"),
        train_split=found.get("dataset_train_split") or "train",
        test_split=found.get("dataset_test_split") or "test",
        blocks=tuple(blocks) if blocks else None,
    )
