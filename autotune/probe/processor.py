"""How much of the processor this process gets now: measured by using it for a moment.

Averages of load tell of the last minutes and count this very program; a container's share of a
machine is in none of them. So every core is kept busy for a third of a second, and the processor
time that was got is counted.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from dataclasses import dataclass

_BURST_S = 0.35
_BLOCK = bytes(2**20)


@dataclass(frozen=True)
class Share:
    """What a process got of the processor.

    Args:
        cores: cores it may use, as far as libraries will ask for them.
        got: cores' worth of time it got.
    """

    cores: int
    got: float

    @property
    def slowdown(self) -> float:
        """How many times as long work takes as it would alone; at least 1."""
        return max(1.0, self.cores / max(self.got, 1e-3))


def usable_cores() -> int:
    """Return the cores torch will use: those of this process, or as many as the user asks for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores or 1, int(asked)) if asked.isdecimal() and int(asked) else cores or 1


def measure_share(seconds: float = _BURST_S) -> Share:
    """Use every core for a moment and return what was got.

    Args:
        seconds: length of the moment.
    """
    cores = usable_cores()
    used: list[float] = []
    end = time.monotonic() + seconds

    def work() -> None:
        start = time.thread_time()
        while time.monotonic() < end:
            hashlib.sha256(_BLOCK).digest()  # lets other threads of Python run meanwhile
        used.append(time.thread_time() - start)

    start = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Share(cores, sum(used) / (time.monotonic() - start))
