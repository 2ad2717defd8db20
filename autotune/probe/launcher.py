"""What starting a measuring process needs, whichever way: the interface, variables, a lifeline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from autotune.knobs.isolation import CHILD_ENV, LAUNCHER_ENV, WAITING_ENV, WAITING_NAMES

#: The module every measuring process runs.
ENTRY = "autotune.child"


class Launched(Protocol):
    """A measuring process that was started."""

    pid: int

    def poll(self, wait_s: float) -> int | None:
        """Wait at most this long; return the exit code (negative: signal) once it has ended."""


class Launcher(Protocol):
    """A way of starting measuring processes."""

    def launch(self, request: Path, env: Mapping[str, str] | None = None) -> Launched:
        """Start a process on a request file.

        Args:
            request: the request.
            env: variables of the candidate, read when libraries load, so that a process with
                any starts from scratch; they are added to the launcher's own.
        """

    def preload(self, model_type: str) -> None:
        """Get a model's code ready before the next launch, where that saves anything."""

    def close(self) -> None:
        """End everything this launcher started."""


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the user's environment less a launcher's names, plus what measuring asks for.

    Args:
        extra: variables of the job or of a candidate; isolation wins over them.
    """
    kept = {k: v for k, v in os.environ.items() if k not in LAUNCHER_ENV}
    own = {k: v for k, v in (extra or {}).items() if k not in LAUNCHER_ENV}
    asked = {**kept, **own}
    waiting = {} if any(name in asked for name in WAITING_NAMES) else WAITING_ENV
    return {**asked, **waiting, **CHILD_ENV}


class Lifeline:
    """A pipe whose closing tells children that this process is gone."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        os.set_inheritable(self.read_fd, True)

    def close(self) -> None:
        for fd in (self.read_fd, self._write_fd):
            os.close(fd)
