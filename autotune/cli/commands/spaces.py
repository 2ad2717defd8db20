"""``autotune spaces``: list, show and check search spaces."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.console import say

if TYPE_CHECKING:
    from autotune.core.candidate import Value
    from autotune.spaces.schema import Dimension, Space


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="List, show and check search spaces.")
    group.command("list", help="List the shipped search spaces.")(list_)
    group.command("show", help="Print a search space.")(show)
    group.command("check", help="Check a search-space file.")(check)
    app.add_typer(group, name="spaces")


def list_() -> None:
    """Print every shipped space with its trainer, its knobs and what it is for."""
    from autotune.spaces.load import list_spaces

    for _, space in list_spaces():
        say(f"{space.name:<14} {space.trainer:<8} {len(space.knobs):>2} knobs  {space.describe}")


def show(
    name: Annotated[str, typer.Argument(help="Name of a shipped space, or a file.")],
    trainer: Annotated[
        str | None, typer.Option(help="Print what the space is for one trainer, knob by knob.")
    ] = None,
) -> None:
    """Print the file, or what it means for a trainer."""
    from autotune.spaces.load import find_space, read_space

    path = find_space(name)
    space = read_space(path)
    if trainer is None:
        say(path.read_text(encoding="utf-8"), nl=False)
        return
    for line in lines_for(space, trainer):
        say(line)


def check(file: Annotated[str, typer.Argument(help="A search-space file.")]) -> None:
    """Read the file and say that it is well formed."""
    from autotune.spaces.load import find_space, read_space

    path = find_space(file)
    space = read_space(path)
    auto = [name for name, dimension in space.dimensions().items() if dimension.choices == "auto"]
    listed = [len(d.choices) for d in space.dimensions().values() if d.choices != "auto"]
    whose = " trainer" if space.trainer == "any" else ""
    say(
        f"{path} is a search space for {space.trainer}{whose} with {len(space.knobs)} knobs: "
        f"at most {math.prod(listed):,} assignments"
        + (f", times those of {', '.join(auto)}." if auto else ".")
    )


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


def _choices(dimension: Dimension, has: set[str]) -> str:
    shown = "auto" if dimension.choices == "auto" else _shown(dimension.choices)
    conditions = [
        f"{other} is {_shown(values, ' or ')}"
        for other, values in dimension.when.items()
        if other in has
    ]
    return f"{shown}, where {' and '.join(conditions)}" if conditions else shown


def _shown(values: list[Value], between: str = ", ") -> str:
    words = (
        "null" if v is None else str(v).lower() if v in (True, False) else str(v) for v in values
    )
    return between.join(words)
