"""Options several commands share, declared once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.core.errors import BadInput

if TYPE_CHECKING:
    from autotune.intake.request import Request

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Hub id, model folder, or config.json; demo is the embedded one.",
        metavar="M",
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Hub id, file (JSON, JSONL, Parquet, CSV), or folder; demo is the embedded one.",
    ),
]
Config = Annotated[
    str | None, typer.Option("--config", help="TRL YAML file, as `trl sft --config` reads it.")
]
DatasetConfig = Annotated[
    str | None, typer.Option("--dataset-config", help="Configuration of a hub data set.")
]
TrainSplit = Annotated[
    str | None, typer.Option("--dataset-train-split", help="Split that is trained on.")
]
TestSplit = Annotated[
    str | None, typer.Option("--dataset-test-split", help="Split evaluation uses.")
]
TrainerName = Annotated[
    str, typer.Option("--trainer", help="TRL trainer: sft, dpo, reward or kto.")
]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:i.")]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="What this job may use of the device, such as 22GiB. Default: what is free.",
    ),
]
Headroom = Annotated[
    str | None,
    typer.Option(
        "--headroom",
        help="Share of the memory kept free. Default: 5%; 15% of memory shared with the system.",
    ),
]
ProbeTimeout = Annotated[
    str | None,
    typer.Option(
        "--probe-timeout",
        help="Longest single probe, such as 10m; a verification has five times that. Default: ten "
        "times what is expected of it; your own config takes what it takes.",
    ),
]
MinRetention = Annotated[
    str,
    typer.Option(
        "--min-retention",
        help="Least share of label tokens a candidate must keep, with all that comes before them.",
    ),
]
Weights = Annotated[
    str, typer.Option("--weights", help="What probes are built with: random or real weights.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="TRL option to fix, key=value; may be repeated."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.")]
OutputFormat = Annotated[str, typer.Option("--format", help="table or json.")]


def request_of(context: typer.Context, *, but: tuple[str, ...] = ()) -> Request:
    """Return what a command line asks for: its options that are fields of a request, by name.

    Args:
        context: typer's context of the command.
        but: options of the command that mean something else than the field of their name.

    Raises:
        BadInput: ``--set`` is not of the form it should have.
    """
    from autotune.intake.request import Request

    options = {name: value for name, value in context.params.items() if name not in but}
    options["set_options"] = parse_sets(options["set_"] or [])
    allowed = (options.get("allow") or "").split(",")
    options["allow"] = tuple(change.strip() for change in allowed if change.strip())
    fields = {field.name for field in dataclasses.fields(Request)}
    values = {name: value for name, value in options.items() if name in fields}
    return Request(**values, given=tuple(name for name in values if _typed(context, name)))


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, its default value or another."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


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
