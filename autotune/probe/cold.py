"""Starts every measuring process from scratch: slower, and safe for every knob."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from autotune.knobs.variables import merge_env
from autotune.probe.documents import LOG_FILE
from autotune.probe.launcher import ENTRY, Launched, Lifeline, child_environment


class ColdLauncher:
    """Start every measuring process from scratch: slower, and safe for every knob."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        """Remember the variables children get.

        Args:
            env: variables beside the user's own environment.
        """
        self._own = dict(env or {})
        self._lifeline = Lifeline()

    def launch(self, request: Path, env: Mapping[str, str] | None = None) -> Launched:
        """Start a fresh interpreter on the request."""
        with (request.parent / LOG_FILE).open("ab") as log:
            process = subprocess.Popen(
                [
                    *[sys.executable, "-m", ENTRY, "--once"],
                    *[str(self._lifeline.read_fd), str(request)],
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child_environment(merge_env({**os.environ, **self._own}, env or {})),
                pass_fds=(self._lifeline.read_fd,),
                start_new_session=True,
            )
        return _ColdProcess(process)

    def preload(self, model_type: str) -> None:
        """Do nothing: a fresh interpreter imports what it needs."""

    def close(self) -> None:
        """Close the lifeline; children that still run end themselves."""
        self._lifeline.close()


class _ColdProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def poll(self, wait_s: float) -> int | None:
        try:
            return self._process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            return None
