"""What Ctrl-C and SIGTERM do to a command: before it begins, while it works, and after it.

Imports nothing but what Python itself has loaded: it is in force before anything else is.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

#: What a shell reports of a process that SIGTERM ended: 128 + 15.
SIGTERM_EXIT_CODE = 143
#: What it reports of one that Ctrl-C ended: 128 + 2.
SIGINT_EXIT_CODE = 130
#: What it reports of one whose reader went away: 128 + 13.
SIGPIPE_EXIT_CODE = 141


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when the process is asked to terminate."""


def end_at_ctrl_c() -> None:
    """Have Ctrl-C end the process on the spot: nothing is begun yet, or all is done.

    Where it is ignored, as in a job in the background, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interrupt_at_ctrl_c() -> None:
    """Have Ctrl-C raise `KeyboardInterrupt` again, after `end_at_ctrl_c`."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def terminate_like_ctrl_c() -> None:
    """Raise `Terminated` on SIGTERM and SIGHUP from now on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: stopped.\n")
    os._exit(SIGINT_EXIT_CODE)
