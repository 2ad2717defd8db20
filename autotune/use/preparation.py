"""Start the measuring process and have it prepare rows and model, as every use case begins."""

from __future__ import annotations

from pathlib import Path

from autotune.core.job import Job
from autotune.intake.job import Origin
from autotune.probe.launch import open_launcher
from autotune.probe.launcher import Launcher
from autotune.probe.prepared import Prepared
from autotune.probe.progress import and_progress
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.use.watcher import Watcher

STARTING = "starting the measuring process (imports torch, transformers and trl)"
#: Preparation may tokenise a large data set; this bounds a hang, not the work.
_DEADLINE_S = 6 * 3600.0


def open_measuring(job: Job, origin: Origin, log_dir: Path, watch: Watcher) -> tuple[Launcher, str]:
    """Open what starts a job's measuring processes; they alone are given its secrets.

    Args:
        job: its environment is theirs.
        origin: where the secrets taken out of the job are.
        log_dir: existing folder for their logs.
        watch: told how long it takes.

    Returns:
        The launcher, and why probes start from scratch (empty when they do not).
    """
    return open_launcher(log_dir, {**job.env, **origin.secret_env}, watch.tick)


def prepare(spec: PrepareSpec, runner: Runner, watch: Watcher) -> Prepared:
    """Prepare what a job names with TRL's own preparation.

    Args:
        spec: the job, and the folder its rows are written to.
        runner: the measuring process.
        watch: told of the station and of progress.

    Raises:
        BadInput: something asked for cannot be used.
        EnvironmentUnable: this machine cannot do it.
        ToolFailure: the measuring process failed.
    """
    watch.stage("preparing your rows with TRL's own preparation")
    tick = and_progress(Path(spec.out_dir), watch.tick, watch.progress)
    return runner.prepare(spec, deadline_s=_DEADLINE_S, tick=tick)
