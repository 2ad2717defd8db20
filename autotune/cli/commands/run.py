"""``autotune run``: search by measuring, write the configuration to train with."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.console import say, stderr, stdout
from autotune.cli.options import (
    Config,
    Dataset,
    DatasetConfig,
    DeviceName,
    Headroom,
    Memory,
    MinRetention,
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
from autotune.core.job import ALLOWABLE
from autotune.intake.request import DEFAULT_TRIALS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", help="Search for the fastest configuration that fits.")(run)


def run(
    context: typer.Context,
    model: Model = None,
    dataset: Dataset = None,
    dataset_config: DatasetConfig = None,
    dataset_train_split: TrainSplit = None,
    dataset_test_split: TestSplit = None,
    trainer: TrainerName = "sft",
    config: Config = None,
    space: Annotated[
        str | None, typer.Option(help="Search space: a name or a YAML file.", metavar="NAME|FILE")
    ] = None,
    device: DeviceName = "auto",
    memory: Memory = None,
    headroom: Headroom = None,
    objective: Annotated[str, typer.Option(help="throughput, memory or length.")] = "throughput",
    min_retention: MinRetention = "99%",
    effective_batch: Annotated[
        int | None, typer.Option(help="Sequences per update. Default: the config's own.", min=1)
    ] = None,
    trials: Annotated[int, typer.Option(help="Most probes of the search.", min=1)] = DEFAULT_TRIALS,
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Longest search, such as 10m. Confirming and verifying the winner may take half "
            "as long again (at least 1m); what is left of it then is skipped, and that is said."
        ),
    ] = None,
    probe_timeout: ProbeTimeout = None,
    allow: Annotated[
        str | None,
        typer.Option(
            help="What the search may change beyond neutral and data, comma-separated: "
            f"{', '.join(ALLOWABLE)}. What --set or --config says needs none of them."
        ),
    ] = None,
    weights: Weights = "random",
    set_: Sets = None,
    storage: Annotated[str | None, typer.Option(help="Optuna storage URL.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    seed: Seed = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be tried; probe nothing.")
    ] = False,
    out: Annotated[str | None, typer.Option(help="Folder to write to.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    output_format: OutputFormat = "table",
) -> None:
    """Collect the options and call the use case."""
    check_format(output_format, ("table", "json"))
    request = request_of(context)
    from autotune.api import plan_run
    from autotune.api import run as run_search
    from autotune.cli.answer import print_result
    from autotune.cli.live import LiveView, plan_lines
    from autotune.cli.signals import terminate_like_ctrl_c

    terminate_like_ctrl_c()
    view = LiveView(stderr(), plan_goes_elsewhere=dry_run)
    if dry_run:
        with view:
            plan = plan_run(request, view)
        for line in plan_lines(plan):
            stdout().print(line, markup=False)
        return
    with view:
        result = run_search(request, view)
    if output_format == "json":
        say(result.model_dump_json(indent=1))
    else:
        print_result(result, stdout())
