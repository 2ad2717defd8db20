"""``autotune run``: search by measuring, write the configuration to train with."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.options import Config, Dataset, Model, OutputFormat, check_format, parse_sets
from autotune.intake.request import DEFAULT_TRIALS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", help="Search for the fastest configuration that fits.")(run)


def run(
    model: Model = None,
    dataset: Dataset = None,
    dataset_config: Annotated[
        str | None, typer.Option(help="Configuration of a hub data set.")
    ] = None,
    dataset_train_split: Annotated[str | None, typer.Option(help="Split to train on.")] = None,
    dataset_test_split: Annotated[str | None, typer.Option(help="Split to evaluate on.")] = None,
    trainer: Annotated[str, typer.Option(help="TRL trainer: sft.")] = "sft",
    config: Config = None,
    space: Annotated[
        str | None, typer.Option(help="Search space: a name or a YAML file.", metavar="NAME|FILE")
    ] = None,
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
    objective: Annotated[str, typer.Option(help="throughput, memory or length.")] = "throughput",
    min_retention: Annotated[
        str, typer.Option(help="Least share of label tokens a candidate must keep.")
    ] = "99%",
    effective_batch: Annotated[
        int | None, typer.Option(help="Sequences per update. Default: the config's own.", min=1)
    ] = None,
    trials: Annotated[int, typer.Option(help="Most probes of the search.", min=1)] = DEFAULT_TRIALS,
    timeout: Annotated[
        str | None,
        typer.Option(
            help="Longest search, such as 10m; confirming and verifying the winner come after."
        ),
    ] = None,
    probe_timeout: Annotated[str, typer.Option(help="Longest single probe.")] = "2m",
    allow: Annotated[
        str | None,
        typer.Option(
            help="Changes beyond neutral and data, comma-separated: mixing, longer, "
            "effective-batch."
        ),
    ] = None,
    weights: Annotated[str, typer.Option(help="random or real weights in probes.")] = "random",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="TRL option to fix, key=value; may be repeated."),
    ] = None,
    storage: Annotated[str | None, typer.Option(help="Optuna storage URL.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be tried; probe nothing.")
    ] = False,
    out: Annotated[str | None, typer.Option(help="Folder to write to.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in --out.")] = False,
    output_format: OutputFormat = "table",
) -> None:
    """Collect the options and call the use case."""
    check_format(output_format, ("table", "json"))
    sets = parse_sets(set_ or [])
    from autotune.api import plan_run
    from autotune.api import run as run_search
    from autotune.cli.answer import print_result
    from autotune.cli.console import err
    from autotune.cli.console import out as stdout
    from autotune.cli.live import LiveView, plan_lines
    from autotune.cli.signals import terminate_like_ctrl_c
    from autotune.intake.request import Request

    request = Request(
        model=model,
        dataset=dataset,
        dataset_config=dataset_config,
        dataset_train_split=dataset_train_split,
        dataset_test_split=dataset_test_split,
        trainer=trainer,
        config=config,
        space=space,
        device=device,
        memory=memory,
        headroom=headroom,
        objective=objective,
        min_retention=min_retention,
        effective_batch=effective_batch,
        trials=trials,
        timeout=timeout,
        probe_timeout=probe_timeout,
        allow=tuple(a.strip() for a in (allow or "").split(",") if a.strip()),
        weights=weights,
        set_options=sets,
        storage=storage,
        resume=resume,
        seed=seed,
        out=out,
        force=force,
    )
    terminate_like_ctrl_c()
    view = LiveView(err(), plan_goes_elsewhere=dry_run)
    if dry_run:
        with view:
            plan = plan_run(request, view)
        for line in plan_lines(plan):
            stdout().print(line, markup=False)
        return
    with view:
        result = run_search(request, view)
    if output_format == "json":
        typer.echo(result.model_dump_json(indent=1))
    else:
        print_result(result, stdout())
