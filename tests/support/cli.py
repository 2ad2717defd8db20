"""Runs the command line as a user does: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def autotune(
    *arguments: str, cwd: Path, timeout_s: float = 500.0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``autotune`` to its end and return what it printed."""
    return subprocess.run(
        [sys.executable, "-m", "autotune", *arguments],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(
    *arguments: str, cwd: Path, sigint: signal.Handlers = signal.SIG_DFL
) -> subprocess.Popen[bytes]:
    """Start ``autotune`` and return while it runs; its output goes to ``out`` and ``err``.

    SIGHUP ends it, also where the suite itself runs under nohup.

    Args:
        arguments: of the command line.
        cwd: its folder.
        sigint: what Ctrl-C does to it at the start: a terminal's job is interrupted, one in the
            background of a script ignores it. The suite itself may be either.
    """

    def dispositions() -> None:
        signal.signal(signal.SIGINT, sigint)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    with (cwd / "out").open("wb") as out, (cwd / "err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "autotune", *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            preexec_fn=dispositions,
        )


def wait_until(condition: object, timeout_s: float, what: str) -> None:
    """Wait for something another process does; fails with what was waited for."""
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.05)


def descendants(pid: int) -> list[psutil.Process]:
    """Return everything a process started that still lives."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run (zombies do not)."""
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def trl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run TRL's own command line."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("trl")), *arguments],
        cwd=cwd,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "CI": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
