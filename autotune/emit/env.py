"""Environment variables of the winner as a dotenv file; says so when there is nothing to set."""

from __future__ import annotations

import re

from autotune.core.result import Result
from autotune.emit.settings import settings_of

_BARE = re.compile(r"^[A-Za-z0-9_.,:/=@%+-]*$")


def render(result: Result) -> str:
    """Write one ``NAME=value`` line for each variable, readable by dotenv, shells and Docker.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    settings = settings_of(result)
    if not settings.env:
        return "# Nothing is needed: the chosen configuration sets no environment variable.\n"
    lines = ["# Set before Python starts; best.yaml and best.py set the same themselves."]
    lines += [f"{name}={_quoted(value)}" for name, value in settings.env.items()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    if _BARE.match(value):
        return value
    return "'" + value.replace("'", "'\\''").replace("\n", " ") + "'"
