"""Options several commands share, declared once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotune.core.errors import BadInput

Model = Annotated[
    str | None, typer.Option("--model", help="Hub id, model folder, or config.json.", metavar="M")
]
Dataset = Annotated[
    str | None,
    typer.Option("--dataset", help="Hub id, file (JSON, JSONL, Parquet, CSV), or folder."),
]
Config = Annotated[
    str | None, typer.Option("--config", help="TRL YAML file, as `trl sft --config` reads it.")
]
OutputFormat = Annotated[str, typer.Option("--format", help="table or json.")]


def parse_sets(pairs: list[str]) -> dict[str, Any]:
    """Read ``--set key=value`` options; values are YAML scalars, lists or mappings.

    Raises:
        BadInput: one is not of that form.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set is {pair!r}, expected key=value.", "E.g. --set max_length=2048.")
        reader = YAML(typ="safe", pure=True)
        try:
            found[key.strip()] = reader.load(value)
        except YAMLError as error:
            raise BadInput(f"--set {key.strip()}: {value!r} is not a YAML value.") from error
    return found


def check_format(name: str, known: tuple[str, ...]) -> None:
    """Check ``--format``.

    Raises:
        BadInput: it is unknown.
    """
    if name not in known:
        raise BadInput(f"--format is {name!r}, expected {' or '.join(known)}.")
