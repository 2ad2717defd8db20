"""One warm server for many commands: the command line in this process, its children forked from it.

Importing the training libraries takes seconds and is the same for every command; everything else
is what a user gets: options parsed, a job prepared in a child, words and exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.app import main
from autotune.probe.launcher import Launched
from autotune.probe.warm import WarmServer


@dataclass(frozen=True)
class Said:
    """What a command left behind.

    Args:
        code: its exit code.
        out: what it printed.
        err: what it printed on stderr.
    """

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on stderr that are errors."""
        return [line for line in self.err.splitlines() if line.startswith("error:")]


class Shared:
    """A launcher that outlives the commands that close it.

    Args:
        server: what children are forked from.
        temporary: their folder for temporary files.
    """

    def __init__(self, server: WarmServer, temporary: Path) -> None:
        self.server, self.temporary = server, temporary

    def launch(self, request: Path, env: Mapping[str, str] | None = None) -> Launched:
        return self.server.launch(request, env)

    def preload(self, model_type: str) -> None:
        """Leave the server as it is for every command."""

    def close(self) -> None:
        """Leave the server running for the next command."""


@contextmanager
def shared_server(log_dir: Path) -> Iterator[Shared]:
    """Start a server and end it after the block."""
    temporary = log_dir / "tmp"
    temporary.mkdir()
    env = {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(temporary),
        "HF_MODULES_CACHE": str(log_dir / "modules"),  # where code of models is copied to
    }
    server = WarmServer(log_dir, env)
    try:
        server.wait_ready()
        yield Shared(server, temporary)
    finally:
        server.close()


def command_of(
    shared: Shared, monkeypatch: pytest.MonkeyPatch, capsys: Any, cwd: Path
) -> Callable[..., Said]:
    """Return a function that runs ``autotune`` with these arguments in a folder.

    Args:
        shared: the server its children are forked from.
        monkeypatch: pytest's.
        capsys: pytest's.
        cwd: the folder.
    """
    monkeypatch.setattr("autotune.use.preparation.open_launcher", lambda *_, **__: (shared, ""))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(cwd / ".cache"))
    monkeypatch.chdir(cwd)

    def command(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["autotune", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Said(int(ended.value.code or 0), printed.out, printed.err)

    return command
