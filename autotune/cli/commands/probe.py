"""``autotune probe``: measure exactly one config and write its result document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.files import new_file
from autotune.cli.options import Config, Dataset, Model, OutputFormat, check_format, parse_sets


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("probe", help="Measure exactly one config, for a comparison.")(probe)


def probe(
    model: Model = None,
    dataset: Dataset = None,
    dataset_config: Annotated[
        str | None, typer.Option(help="Configuration of a hub data set.")
    ] = None,
    dataset_train_split: Annotated[str | None, typer.Option(help="Split to train on.")] = None,
    dataset_test_split: Annotated[str | None, typer.Option(help="Split to evaluate on.")] = None,
    trainer: Annotated[str, typer.Option(help="TRL trainer: sft.")] = "sft",
    config: Config = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    memory: Annotated[
        str | None,
        typer.Option(
            help="What this job may use of the device, such as 22GiB. Default: what is free."
        ),
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(
            help="Share of the memory kept free. Default: 5%; 15% of memory shared with the system."
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            help="Times the config is measured; from 2 on in turns with a reference form of it, so "
            "that speed is also known as a ratio.",
            min=1,
        ),
    ] = 3,
    probe_timeout: Annotated[str, typer.Option(help="Longest single probe.")] = "2m",
    weights: Annotated[str, typer.Option(help="random or real weights.")] = "random",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="TRL option to replace, key=value; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    out: Annotated[
        str | None, typer.Option(help="File the result document is written to.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file in --out.")] = False,
    output_format: OutputFormat = "table",
) -> None:
    """Measure the config and write what was found."""
    check_format(output_format, ("table", "json"))
    sets = parse_sets(set_ or [])
    file = None if out is None else new_file(out, force=force)
    from autotune.api import probe as measure
    from autotune.cli.console import err
    from autotune.cli.console import out as stdout
    from autotune.cli.measured import MeasuringView, measured_lines
    from autotune.cli.signals import terminate_like_ctrl_c
    from autotune.intake.request import Request
    from autotune.probe.protocol import write_document
    from autotune.study.single import require_runs

    request = Request(
        model=model,
        dataset=dataset,
        dataset_config=dataset_config,
        dataset_train_split=dataset_train_split,
        dataset_test_split=dataset_test_split,
        trainer=trainer,
        config=config,
        device=device,
        memory=memory,
        headroom=headroom,
        probe_timeout=probe_timeout,
        weights=weights,
        set_options=sets,
        seed=seed,
    )
    terminate_like_ctrl_c()
    with MeasuringView(err()) as view:
        result = measure(request, repeats=repeats, watcher=view)
    result = result.model_copy(update={"out_dir": str((file or Path("x")).resolve().parent)})
    if file is not None:
        write_document(file, result)
    if output_format == "json":
        typer.echo(result.model_dump_json(indent=1))
    elif result.best is not None:
        for line in measured_lines(result):
            stdout().print(line, markup=False)
        if file is not None:
            stdout().print(f"written to {file}", markup=False)
    require_runs(result)
