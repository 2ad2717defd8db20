"""What Ctrl-C, SIGTERM and SIGHUP do to a command: before it begins, while it works, after it.

What was ignored when the command started stays so: Ctrl-C in a job in the background of a script
(it is meant for what runs in front), SIGHUP under nohup. Measuring processes are in sessions of
their own, so that a terminal's Ctrl-C reaches this process alone, which ends them.

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
    """Raised in the main thread when the process is asked to terminate; says by which signal."""


def end_at_ctrl_c() -> None:
    """Have Ctrl-C end the process on the spot: nothing is begun yet, or all is done."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interrupt_at_ctrl_c() -> None:
    """Have Ctrl-C raise `KeyboardInterrupt` again, after `end_at_ctrl_c`."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def terminate_like_ctrl_c() -> None:
    """Raise `Terminated` on SIGTERM and SIGHUP from now on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def how_to_stop() -> str:
    """Say how a command is stopped where Ctrl-C is ignored; empty where it is not."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        return ""
    return (
        f"Ctrl-C does not reach a job in the background: `kill {os.getpid()}` stops it and keeps "
        "every finished probe."
    )


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: stopped.\n")
    os._exit(SIGINT_EXIT_CODE)
