"""``autotune spaces``: list, show and check search spaces, and the schema editors use."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.console import say
from autotune.cli.options import OutputFormat, check_format

if TYPE_CHECKING:
    from autotune.core.candidate import Value
    from autotune.spaces.schema import Dimension, Space


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="List, show and check search spaces.")
    group.command("list", help="List the shipped search spaces.")(list_)
    group.command("show", help="Print a search space: a file to start from.")(show)
    group.command("check", help="Check a search-space file.")(check)
    group.command("schema", help="Print the JSON Schema with which editors complete spaces.")(
        schema
    )
    app.add_typer(group, name="spaces")


def list_(output_format: OutputFormat = "table") -> None:
    """Print every shipped space with its trainer, its knobs and what it is for."""
    check_format(output_format, ("table", "json"))
    from autotune.spaces.load import list_spaces

    spaces = [space for _, space in list_spaces()]
    if output_format == "json":
        say(json.dumps([space.model_dump(mode="json") for space in spaces], indent=1))
        return
    _print(
        [
            f"{space.name:<14} {space.trainer:<8} {len(space.knobs):>2} knobs  {space.describe}"
            for space in spaces
        ]
    )


def show(
    name: Annotated[str, typer.Argument(help="Name of a shipped space, or a file.")],
    trainer: Annotated[
        str | None, typer.Option(help="Print what the space is for one trainer, knob by knob.")
    ] = None,
    output_format: OutputFormat = "table",
) -> None:
    """Print the file, or what it means for a trainer."""
    check_format(output_format, ("table", "json"))
    from autotune.spaces.json_schema import with_schema
    from autotune.spaces.load import find_space, read_space, spaces_dir

    path = find_space(name)
    space = read_space(path)
    lines = [] if trainer is None else lines_for(space, trainer)
    if output_format == "json":
        say(space.model_dump_json(indent=1))
    elif trainer is None:
        text = path.read_text(encoding="utf-8")
        shipped = path.parent == spaces_dir()
        say(with_schema(text, path.parent) if shipped else text, nl=False)
    else:
        _print(lines)


def check(file: Annotated[str, typer.Argument(help="A search-space file.")]) -> None:
    """Read the file and say that it is well formed."""
    from autotune.knobs.catalog import knob
    from autotune.spaces.load import find_space, read_space

    path = find_space(file)
    space = read_space(path)
    counts = {
        name: knob(name).choices if d.choices == "auto" else d.choices
        for name, d in space.dimensions().items()
    }
    auto = [name for name, choices in counts.items() if choices is None]
    most = math.prod(len(choices) for choices in counts.values() if choices is not None)
    whose = " trainer" if space.trainer == "any" else ""
    say(
        f"{path} is a search space for {space.trainer}{whose} with "
        f"{_count(len(space.knobs), 'knob')}: at most {_count(most, 'assignment')}"
        + (f", times those of {', '.join(auto)}." if auto else ".")
    )


def schema() -> None:
    """Print the JSON Schema."""
    from autotune.spaces.json_schema import json_schema

    say(json.dumps(json_schema(), indent=1))


def lines_for(space: Space, trainer: str) -> list[str]:
    """Return what a space is for one trainer, a line a knob.

    Args:
        space: the space.
        trainer: the trainer's name, as on the command line.

    Raises:
        BadInput: there is no such trainer, or the space is for another.
    """
    from autotune.core.errors import BadInput, nearest
    from autotune.core.job import Trainer
    from autotune.knobs.catalog import knob, knobs_of

    names = [t.value for t in Trainer]
    if trainer not in names:
        raise BadInput(
            f"--trainer is {trainer!r}{nearest(trainer, names)}.", f"It takes {', '.join(names)}."
        )
    if not space.suits(Trainer(trainer)):
        raise BadInput(f"the space {space.name!r} is for {space.trainer}, not for {trainer}.")
    has = {row.name for row in knobs_of(Trainer(trainer))}
    lines = [f"{space.name} for {trainer}: {space.describe}"]
    for name, dimension in space.dimensions().items():
        if name in has:
            lines += [f"  {name}: {_choices(dimension, has)}", f"      {knob(name).help}"]
    without = [name for name in space.knobs if name not in has]
    if without:
        lines.append(f"  left out, since {trainer} has none: {', '.join(without)}")
    return lines


def _print(lines: list[str]) -> None:
    """Print lines; a terminal breaks them between words, a pipe gets them whole."""
    from autotune.cli.console import stdout

    for line in lines:
        stdout().print(line, markup=False, emoji=False)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _choices(dimension: Dimension, has: set[str]) -> str:
    shown = "auto" if dimension.choices == "auto" else _shown(dimension.choices)
    conditions = [
        f"{other} is {_shown(values, ' or ')}"
        for other, values in dimension.when.items()
        if other in has
    ]
    return f"{shown}, where {' and '.join(conditions)}" if conditions else shown


def _shown(values: list[Value], between: str = ", ") -> str:
    from autotune.spaces.schema import as_written

    return between.join(map(as_written, values))
