"""The command that trains what a run found, as it is typed; pure."""

from __future__ import annotations

import shlex

from autotune.core.result import Result

#: Stands where the user has to say where the weights are; no shell takes it for anything else.
WEIGHTS = "FOLDER_OR_HUB_ID_WITH_THE_WEIGHTS"


def train_command(result: Result, file: str) -> str:
    """Return the command line that trains the chosen configuration.

    Args:
        result: a result with a best trial.
        file: the emitted YAML.
    """
    words = ["trl", result.job.trainer.value, "--config", file]
    if result.lacks_weights:
        words += ["--model_name_or_path", WEIGHTS]
    if result.device.kind == "cpu":
        words += ["--use_cpu", "true"]
    return shlex.join(words)


def weights_remark(result: Result) -> str:
    """Say that training needs weights that are not where the model is; empty when they are."""
    if not result.lacks_weights:
        return ""
    return (
        f"{result.job.model} holds a config and no weights, which measuring does not need and "
        "training does: give the folder or hub id that has them as --model_name_or_path"
    )
