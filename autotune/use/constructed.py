"""Has the installed TRL build the config a run found, once; none is left that it refuses."""

from __future__ import annotations

from pathlib import Path

from autotune.core.errors import BadInput, ToolFailure
from autotune.core.result import Result
from autotune.emit.settings import constructed_options
from autotune.emit.write import remove_emitted
from autotune.probe.protocol import ConstructSpec
from autotune.probe.runner import Runner

#: Longest time TRL may take to build its argument objects.
_DEADLINE_S = 120.0


def require_constructed(result: Result, runner: Runner, out_dir: Path) -> None:
    """Check that TRL takes the chosen config; nothing is checked where none was chosen.

    Args:
        result: a finished run's.
        runner: the measuring process.
        out_dir: folder the files to train with are in; they are removed when TRL refuses them.

    Raises:
        EnvironmentUnable: the config needs a package that is not installed.
        ToolFailure: TRL refuses what autotune would have it train.
    """
    if result.best is None:
        return
    spec = ConstructSpec(trainer=result.job.trainer, options=constructed_options(result))
    try:
        runner.construct(spec, deadline_s=_DEADLINE_S)
    except BadInput as refused:
        remove_emitted(out_dir)
        raise ToolFailure(
            f"the installed TRL refuses the config that was found: {refused.message}",
            f"No best.yaml was left; what was measured is in {out_dir}.",
        ) from refused
