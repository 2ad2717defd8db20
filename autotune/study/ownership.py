"""Who works in a run's folder and who opened a trial: one living process each."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import IO, Any

import psutil

from autotune.core.errors import BadInput

_LOCK = ".lock"


def hold(out_dir: Path) -> IO[str]:
    """Take a run's folder for this process until the returned file is closed.

    Raises:
        BadInput: another process holds it.
    """
    lock = (out_dir / _LOCK).open("a", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise BadInput(
            f"another autotune is working in {out_dir}.", "Wait for it, or choose another --out."
        ) from error
    return lock


def is_held(out_dir: Path) -> bool:
    """Whether a process is working in a run's folder."""
    if not (out_dir / _LOCK).exists():
        return False
    try:
        hold(out_dir).close()
    except BadInput:
        return True
    return False


def this_process() -> dict[str, Any]:
    """Return what names this process on every machine and at every time."""
    process = psutil.Process()
    return {"host": socket.gethostname(), "pid": process.pid, "started": process.create_time()}


def is_alive(owner: dict[str, Any] | None) -> bool:
    """Whether the process that opened a trial still lives, other than this one.

    Args:
        owner: as `this_process` named it; None is nobody.
    """
    if not owner:
        return False
    if owner["host"] != socket.gethostname():
        return True  # another machine's business
    if owner["pid"] == os.getpid():
        return False
    try:
        return abs(psutil.Process(owner["pid"]).create_time() - float(owner["started"])) < 1.0
    except psutil.NoSuchProcess:
        return False
