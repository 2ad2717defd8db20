"""``autotune profile``: how long the rows are, and which ``max_length`` to take."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.console import say, stderr, stdout
from autotune.cli.files import new_file, write_text
from autotune.cli.options import (
    Config,
    Dataset,
    DatasetConfig,
    MinRetention,
    Model,
    Seed,
    Sets,
    TestSplit,
    TrainerName,
    TrainSplit,
    check_format,
    request_of,
)

if TYPE_CHECKING:
    from autotune.core.length_report import LengthReport

FORMATS = ("table", "json", "html")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("profile", help="Show how long the rows are, and which max_length to take.")(
        profile
    )


def profile(
    context: typer.Context,
    model: Model = None,
    dataset: Dataset = None,
    dataset_config: DatasetConfig = None,
    dataset_train_split: TrainSplit = None,
    dataset_test_split: TestSplit = None,
    trainer: TrainerName = "sft",
    config: Config = None,
    min_retention: MinRetention = "99%",
    set_: Sets = None,
    sample: Annotated[
        int | None,
        typer.Option(help="Look at no more than this many rows. Default: all.", min=1),
    ] = None,
    seed: Seed = 0,
    output_format: Annotated[str, typer.Option("--format", help="table, json or html.")] = "table",
    out: Annotated[
        str | None, typer.Option(help="File to write instead of stdout.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out.")] = False,
) -> None:
    """Collect the options and call the use case."""
    check_format(output_format, FORMATS)
    request = request_of(context, but=("out", "force"))
    if out is not None:
        new_file(out, force=force)  # before the work
    elif output_format == "html" and sys.stdout.isatty():
        # A megabyte of page is nothing to read in a terminal.
        out = "lengths.html"
    from autotune.cli.row_progress import RowsView
    from autotune.cli.signals import terminate_like_ctrl_c
    from autotune.use.profile import profile_rows

    terminate_like_ctrl_c()
    with RowsView(stderr()) as view:
        report = profile_rows(request, sample_rows=sample, watcher=view)
    if out is None:
        _print(report, output_format)
    else:
        say(f"written to {write_text(out, _text(report, output_format), force=True)}")


def _print(report: LengthReport, output_format: str) -> None:
    if output_format == "table":
        from autotune.cli.lengths_view import print_lengths

        print_lengths(report, stdout())
    else:
        say(_text(report, output_format), nl=False)


def _text(report: LengthReport, output_format: str) -> str:
    if output_format == "json":
        return report.model_dump_json(indent=1) + "\n"
    if output_format == "html":
        from autotune.report.profile_page import render

        return render(report)
    from io import StringIO

    from rich.console import Console

    from autotune.cli.lengths_view import print_lengths

    text = StringIO()
    print_lengths(report, Console(file=text, width=100, highlight=False))
    return text.getvalue()
