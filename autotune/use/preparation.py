"""Have the measuring process prepare rows and model, as every use case begins."""

from __future__ import annotations

from pathlib import Path

from autotune.probe.prepared import Prepared
from autotune.probe.progress import and_progress
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.use.watcher import Watcher

STARTING = "starting the measuring process (imports torch, transformers and trl)"
#: Preparation may tokenise a large data set; this bounds a hang, not the work.
_DEADLINE_S = 6 * 3600.0


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
