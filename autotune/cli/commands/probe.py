"""``autotune probe``: measure exactly one config and write its result document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.console import say, stderr, stdout
from autotune.cli.files import new_file
from autotune.cli.options import (
    Config,
    Dataset,
    DatasetConfig,
    DeviceName,
    Headroom,
    Memory,
    Model,
    OutputFormat,
    ProbeTimeout,
    Seed,
    Sets,
    TestSplit,
    TrainerName,
    TrainSplit,
    Weights,
    check_format,
    request_of,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("probe", help="Measure exactly one config, for a comparison.")(probe)


def probe(
    context: typer.Context,
    model: Model = None,
    dataset: Dataset = None,
    dataset_config: DatasetConfig = None,
    dataset_train_split: TrainSplit = None,
    dataset_test_split: TestSplit = None,
    trainer: TrainerName = "sft",
    config: Config = None,
    device: DeviceName = "auto",
    memory: Memory = None,
    headroom: Headroom = None,
    repeats: Annotated[
        int,
        typer.Option(
            help="Times the config is measured; from 2 on in turns with a reference form of it, so "
            "that speed is also known as a ratio.",
            min=1,
        ),
    ] = 3,
    probe_timeout: ProbeTimeout = None,
    weights: Weights = "random",
    set_: Sets = None,
    seed: Seed = 0,
    out: Annotated[
        str | None, typer.Option(help="File the result document is written to.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out.")] = False,
    output_format: OutputFormat = "table",
) -> None:
    """Measure the config and write what was found."""
    check_format(output_format, ("table", "json"))
    request = request_of(context, but=("out", "force"))
    file = None if out is None else new_file(out, force=force)
    from autotune.api import probe as measure
    from autotune.cli.measured import MeasuringView, measured_lines
    from autotune.cli.signals import terminate_like_ctrl_c
    from autotune.probe.documents import write_document
    from autotune.study.single import require_runs

    terminate_like_ctrl_c()
    with MeasuringView(stderr()) as view:
        result = measure(request, repeats=repeats, watcher=view)
    result = result.model_copy(update={"out_dir": str((file or Path("x")).resolve().parent)})
    if file is not None:
        write_document(file, result)
    if output_format == "json":
        say(result.model_dump_json(indent=1))
    elif result.best is not None:
        for line in measured_lines(result):
            stdout().print(line, markup=False)
        if file is not None:
            stdout().print(f"written to {file}", markup=False)
    require_runs(result)
