"""``autotune report``: a stored result for people and for CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.console import say


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report", help="Show a stored result as a page, a comment, a table or tests.")(
        report
    )


def report(
    result: Annotated[str, typer.Argument(help="A run's folder, or its result.json.")],
    output_format: Annotated[
        str, typer.Option("--format", help="html, markdown, csv or junit.")
    ] = "markdown",
    out: Annotated[
        str | None, typer.Option(help="File to write instead of stdout.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out.")] = False,
) -> None:
    """Read the result and write it in the format."""
    from autotune.cli.files import write_text
    from autotune.core.errors import BadInput, nearest
    from autotune.core.result import read_result
    from autotune.report import REPORTERS

    if output_format not in REPORTERS:
        raise BadInput(
            f"--format is {output_format!r}{nearest(output_format, list(REPORTERS))}.",
            f"It takes {', '.join(REPORTERS)}.",
        )
    reporter = REPORTERS[output_format]
    source = Path(result).expanduser()
    document = read_result(source)
    text = reporter.render(document)
    if out is None and output_format == "html" and sys.stdout.isatty():
        # A megabyte of page is nothing to read in a terminal.
        folder = source if source.is_dir() else source.parent
        out, force = str(folder / reporter.file_name), True
    if out is None:
        say(text, nl=False)
        return
    if Path(out).suffix == ".json":
        raise BadInput(f"{out} looks like a result, which a report would replace.")
    say(f"written to {write_text(out, text, force=force)}")
