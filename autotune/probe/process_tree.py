"""Ends measuring processes and all that they started, and nobody else's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import psutil

from autotune.probe.launcher import Launched

_GRACE_SECONDS = 1.0
#: Seconds between two looks at the processor time of a process, and what of them is none.
_LOOK_EVERY_S = 5.0
_IDLE_SHARE = 0.002


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


class Idleness:
    """How long a process and its descendants have used no processor time."""

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to watch a process.

        Args:
            pid: the process.
            clock: seconds that pass.
        """
        self._pid, self._clock = pid, clock
        self._used_s, self._since = 0.0, clock()
        self._next = clock() + _LOOK_EVERY_S

    def seconds(self) -> float:
        """Return for how long it has been idle, as of the last look; looks now and then."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _LOOK_EVERY_S
            used_s = _processor_seconds(self._pid)
            if abs(used_s - self._used_s) > _IDLE_SHARE * _LOOK_EVERY_S:
                self._used_s, self._since = used_s, now
        return now - self._since


def _processor_seconds(pid: int) -> float:
    try:
        own = psutil.Process(pid)
        times = [p.cpu_times() for p in (own, *own.children(recursive=True))]
    except psutil.NoSuchProcess:
        return 0.0
    return float(sum(t.user + t.system for t in times))


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
