"""Ends measuring processes and all that they started, and nobody else's."""

from __future__ import annotations

import os
import signal
import time

import psutil

from autotune.probe.launcher import Launched

_GRACE_SECONDS = 1.0


def end_tree(process: Launched) -> int:
    """End a process and all its descendants: politely first, then for good.

    Returns:
        Its exit code.
    """
    family = _family(process.pid)
    signal_group(process.pid, signal.SIGTERM)
    code = process.poll(_GRACE_SECONDS)
    family += [p for p in _family(process.pid) if p not in family]
    signal_group(process.pid, signal.SIGKILL)
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    end = time.monotonic() + 10.0
    while code is None and time.monotonic() < end:
        code = process.poll(0.1)
    return code if code is not None else -signal.SIGKILL


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a process group that may be gone already."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 once it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
