"""Lets a measuring process that is killed still tell what it was doing.

The child overwrites one line of a small file whenever its phase changes (one ``pwrite``, a few
microseconds); the bytes are the kernel's then, so that even SIGKILL leaves them. The parent reads
the file only when no answer came.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from autotune.core.outcome import Phase

PHASE_FILE = "phase.txt"
_WIDTH = 40


class PhaseFile:
    """Write the phase beside a request."""

    def __init__(self, folder: Path) -> None:
        """Open the file.

        Args:
            folder: the request's folder.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(folder / PHASE_FILE, flags, 0o644)

    def tell(self, phase: Phase, step: int) -> None:
        """Write what is being done; a full disk is no reason to fail.

        Args:
            phase: the phase that begins.
            step: micro-steps finished before it.
        """
        with suppress(OSError):
            os.pwrite(self._fd, f"{phase.value} {step}".ljust(_WIDTH).encode(), 0)


def read_phase(folder: Path) -> tuple[Phase | None, int]:
    """Return the last phase a process told of and its finished micro-steps; None if it told none.

    Args:
        folder: the request's folder.
    """
    try:
        word, step = (folder / PHASE_FILE).read_text(encoding="ascii").split()
        return Phase(word), int(step)
    except (OSError, ValueError):
        return None, 0
