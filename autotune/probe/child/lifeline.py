"""Ends a process group when its parent is gone, whatever killed the parent.

The parent holds the writing end of a pipe and never writes; the kernel closes it when the parent
dies, SIGKILL included, and the reading end then reports end of file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def watch(fd: int) -> None:
    """Kill the own process group once the pipe closes.

    Args:
        fd: reading end of the parent's pipe.
    """

    def wait_for_the_end() -> None:
        while os.read(fd, 1):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait_for_the_end, name="lifeline", daemon=True).start()


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the process that forked this one ends (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and ended (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
