"""``autotune predict``: what fits a device and how fast it is, without probing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.console import say, stderr, stdout
from autotune.cli.options import (
    Config,
    Dataset,
    DatasetConfig,
    MinRetention,
    Model,
    OutputFormat,
    Seed,
    Sets,
    TestSplit,
    TrainerName,
    TrainSplit,
    check_format,
    request_of,
)

if TYPE_CHECKING:
    from autotune.core.prediction import Forecast


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("predict", help="Show what fits a GPU, and how fast it is, without running it.")(
        predict
    )


def predict(
    context: typer.Context,
    model: Model = None,
    dataset: Dataset = None,
    dataset_config: DatasetConfig = None,
    dataset_train_split: TrainSplit = None,
    dataset_test_split: TestSplit = None,
    trainer: TrainerName = "sft",
    config: Config = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Device to predict for, such as rtx-4090 or h100. Default: this one."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="What this job may use of it, such as 22GiB. Default: all of it."),
    ] = None,
    headroom: Annotated[
        str | None, typer.Option(help="Share of the memory kept free. Default: 5%.")
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="Name or file of a search space. Default: the trainer's own; with --config, that "
            "config alone."
        ),
    ] = None,
    min_retention: MinRetention = "99%",
    effective_batch: Annotated[
        int | None, typer.Option(help="Sequences per optimizer update. Default: the config's.")
    ] = None,
    allow: Annotated[str, typer.Option(help="Changes to allow, e.g. mixing,peft.")] = "",
    set_: Sets = None,
    timeout: Annotated[str, typer.Option(help="Longest time spent on tracing.")] = "10m",
    seed: Seed = 0,
    out: Annotated[
        str | None,
        typer.Option(help="Folder for forecast.json and forecast.html.", metavar="DIR"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace these files.")] = False,
    output_format: OutputFormat = "table",
) -> None:
    """Collect the options, call the use case and show what it found."""
    check_format(output_format, ("table", "json"))
    request = request_of(context, but=("out", "force"))
    files = None if out is None else _files(Path(out).expanduser(), force=force)
    from autotune.cli.forecast_view import print_forecast
    from autotune.cli.row_progress import RowsView
    from autotune.cli.signals import terminate_like_ctrl_c
    from autotune.use.predict import forecast, require_fit

    terminate_like_ctrl_c()
    with RowsView(stderr()) as view:
        found = forecast(request, gpu=gpu, watcher=view)
    if output_format == "json":
        say(found.model_dump_json(indent=1))
    else:
        print_forecast(found, stdout())
    if files is not None:
        _write(found, files)
        written = f"written to {files[1]}"
        stderr().print(written, markup=False) if output_format == "json" else say(written)
    require_fit(found)


def _files(folder: Path, *, force: bool) -> tuple[Path, Path]:
    """Return the document and the page of a folder.

    Raises:
        BadInput: one is there already and is not to be replaced.
    """
    from autotune.cli.files import new_file

    names = ("forecast.json", "forecast.html")
    document, page = (new_file(str(folder / name), force=force) for name in names)
    return document, page


def _write(found: Forecast, files: tuple[Path, Path]) -> None:
    from autotune.cli.files import write_text
    from autotune.report.forecast_page import render

    write_text(str(files[0]), found.model_dump_json(indent=1) + "\n", force=True)
    write_text(str(files[1]), render(found), force=True)
