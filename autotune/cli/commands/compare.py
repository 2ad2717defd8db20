"""``autotune compare``: did anything get worse? For CI; the exit code is the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.console import say

_FORMATS = ("table", "json", "markdown")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare", help="Compare a result with a stored one; 1 is a regression.")(compare)


def compare(
    baseline: Annotated[str, typer.Argument(help="Stored result: a folder or a file.")],
    current: Annotated[str, typer.Argument(help="Result measured now.")],
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="What may not get worse, such as peak_memory:+3%, peak_memory.allocated:+1%, "
            "throughput:-5% or step_time:+0.1s; may be repeated. "
            "Default: peak_memory:+3% and throughput:-5%.",
            metavar="THRESHOLD",
        ),
    ] = None,
    allow_different: Annotated[
        bool,
        typer.Option(
            "--allow-different",
            help="Compare although machine, versions, model or rows differ, and say so.",
        ),
    ] = False,
    speed: Annotated[
        str,
        typer.Option(
            help="absolute, or ratio: throughput as a multiple of the reference measured in the "
            "same run, for machines whose speed varies."
        ),
    ] = "absolute",
    output_format: Annotated[
        str, typer.Option("--format", help="table, json or markdown.")
    ] = "table",
    out: Annotated[
        str | None, typer.Option(help="File to write instead of stdout.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out.")] = False,
) -> None:
    """Read both, compare, print, and exit with the verdict."""
    from autotune.cli.files import write_text
    from autotune.core.errors import EXIT_REGRESSION, BadInput, nearest
    from autotune.core.result import read_result
    from autotune.report import compare as judge
    from autotune.report import parse_thresholds
    from autotune.report.comparison_json import render as render_json
    from autotune.report.comparison_markdown import render_comparison, verdict
    from autotune.report.comparison_text import render as render_text

    for value, known, option in (
        (output_format, _FORMATS, "--format"),
        (speed, _SPEEDS, "--speed"),
    ):
        if value not in known:
            raise BadInput(
                f"{option} is {value!r}{nearest(value, list(known))}.",
                f"It takes {', '.join(known)}.",
            )
    thresholds = parse_thresholds(fail_on or [])
    before = read_result(Path(baseline).expanduser())
    now = read_result(Path(current).expanduser())
    found = judge(
        before,
        now,
        thresholds,
        allow_different=allow_different,
        speed="ratio" if speed == "ratio" else "absolute",
    )
    render = {"table": render_text, "json": render_json, "markdown": render_comparison}
    text = render[output_format](found)
    if out is None:
        say(text, nl=False)
    else:
        if Path(out).suffix == ".json" and Path(out).exists() and output_format != "json":
            raise BadInput(f"{out} looks like a result, which a comparison would replace.")
        say(f"{verdict(found)}; written to {write_text(out, text, force=force)}")
    if found.refusals:
        allowed = judge(before, now, thresholds, allow_different=True)
        raise BadInput(
            f"the two results cannot be compared: {'; '.join(found.refusals)}.",
            "Measure both with `autotune probe` on a machine that has it."
            if allowed.refusals
            else "--allow-different compares results of unlike machines, versions or rows.",
        )
    if not found.passed:
        raise typer.Exit(EXIT_REGRESSION)


_SPEEDS = ("absolute", "ratio")
