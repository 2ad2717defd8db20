"""``autotune emit``: a stored result as a file to train with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.console import say


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("emit", help="Print a stored result as a file to train with.")(emit)


def emit(
    result: Annotated[str, typer.Argument(help="A run's folder, or its result.json.")],
    output_format: Annotated[
        str, typer.Option("--format", help="trl-yaml, python, env, accelerate or json.")
    ] = "trl-yaml",
) -> None:
    """Read the result and print it in the format."""
    from autotune.core.errors import BadInput, nearest
    from autotune.core.result import read_result
    from autotune.emit import EMITTERS

    if output_format not in EMITTERS:
        raise BadInput(
            f"--format is {output_format!r}{nearest(output_format, list(EMITTERS))}.",
            f"It takes {', '.join(EMITTERS)}.",
        )
    say(EMITTERS[output_format].render(read_result(Path(result))), nl=False)
