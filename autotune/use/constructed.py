"""Has the installed TRL read the file a run leaves, as a whole; none is left that it refuses."""

from __future__ import annotations

from pathlib import Path

from autotune.core.errors import BadInput, ToolFailure
from autotune.core.result import Result
from autotune.emit.settings import settings_of
from autotune.emit.table import EMITTERS
from autotune.emit.write import remove_emitted
from autotune.probe.protocol import ConstructSpec
from autotune.probe.runner import Runner

#: Longest time TRL may take to build its argument objects.
_DEADLINE_S = 900.0


def require_constructed(result: Result, runner: Runner, out_dir: Path) -> None:
    """Check that TRL takes the file to train from; nothing is checked where there is none.

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
    # Without a GPU it trains with what its command says; tf32 is for the GPU it is meant for.
    arguments = ["--use_cpu", "true"] if result.device.kind == "cpu" else []
    if arguments and settings_of(result).options.get("tf32"):
        arguments += ["--tf32", "false"]
    spec = ConstructSpec(
        trainer=result.job.trainer,
        file=str((out_dir / EMITTERS["trl-yaml"].file_name).resolve()),
        arguments=tuple(arguments),
    )
    try:
        runner.construct(spec, deadline_s=_DEADLINE_S)
    except BadInput as refused:
        remove_emitted(out_dir)
        raise ToolFailure(
            f"the installed TRL refuses the config that was found: {refused.message}",
            f"No best.yaml was left; what was measured is in {out_dir}.",
        ) from refused
