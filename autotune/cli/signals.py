"""Has SIGTERM end a command the way Ctrl-C does, with its own exit code."""

from __future__ import annotations

import signal
from types import FrameType

#: What a shell reports of a process that SIGTERM ended: 128 + 15.
SIGTERM_EXIT_CODE = 143


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when the process is asked to terminate."""


def terminate_like_ctrl_c() -> None:
    """Raise `Terminated` on SIGTERM and SIGHUP from now on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
