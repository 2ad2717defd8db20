"""``autotune spaces``: list, show and check search spaces."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="List, show and check search spaces.")
    group.command("list", help="List the shipped search spaces.")(list_)
    group.command("show", help="Print a search space.")(show)
    group.command("check", help="Check a search-space file.")(check)
    app.add_typer(group, name="spaces")


def list_() -> None:
    """Print every shipped space with its trainer and what it is for."""
    from autotune.spaces.load import list_spaces

    for _, space in list_spaces():
        typer.echo(f"{space.name:<14} {space.trainer:<8} {space.describe}")


def show(name: Annotated[str, typer.Argument(help="Name of a shipped space, or a file.")]) -> None:
    """Print the file."""
    from autotune.spaces.load import find_space, read_space

    path = find_space(name)
    read_space(path)
    typer.echo(path.read_text(encoding="utf-8"), nl=False)


def check(file: Annotated[str, typer.Argument(help="A search-space file.")]) -> None:
    """Read the file and say that it is well formed."""
    from autotune.spaces.load import find_space, read_space

    path = find_space(file)
    space = read_space(path)
    typer.echo(f"{path} is a search space for {space.trainer} with {len(space.knobs)} knobs.")
