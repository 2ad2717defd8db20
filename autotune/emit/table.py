"""The table of emitters: a new one is one file and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.result import Result
from autotune.emit import accelerate, env, plain_json, python, trl_yaml


@dataclass(frozen=True)
class Emitter:
    """Describe one emitted format.

    Args:
        name: word after ``--format``.
        file_name: its file in a run's folder.
        what: what it is for, in a few words.
        render: makes the text of a result; raises ``NothingFits`` when there is no best trial.
    """

    name: str
    file_name: str
    what: str
    render: Callable[[Result], str]


EMITTERS = {
    e.name: e
    for e in (
        Emitter("trl-yaml", "best.yaml", "file for trl --config", trl_yaml.render),
        Emitter("python", "best.py", "complete training script", python.render),
        Emitter("env", "best.env", "environment variables (dotenv)", env.render),
        Emitter("accelerate", "accelerate.yaml", "accelerate launcher config", accelerate.render),
        Emitter("json", "best.json", "the winner's numbers", plain_json.render),
    )
}
