"""Every error autotune raises on purpose, with the exit code it ends in.

Holds no handling: the command line's outermost frame turns an error into one line and a code.

    AutotuneError
    ├── BadInput           2   the user's input: what was found, what was expected, what to do
    ├── NothingFits        3   every candidate needs more than the budget
    ├── EnvironmentUnable  4   this machine or installation cannot do it
    ├── ToolFailure        5   autotune itself failed
    ├── NotBuiltYet        4   a station of the pipeline that does not exist in this version
    └── Interrupted        130 the user or the system asked us to stop
"""

from __future__ import annotations

import errno
import os
from difflib import get_close_matches

from autotune.core.secrets import hide_text

EXIT_REGRESSION = 1


class AutotuneError(Exception):
    """Carry one clear sentence and, after it, what to do next."""

    exit_code = 5

    def __init__(self, message: str, hint: str | None = None) -> None:
        # What was found may hold a password; notebooks, logs and CI keep what is said.
        self.message = hide_text(message)
        self.hint = None if hint is None else hide_text(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} {self.hint}"


class BadInput(AutotuneError):
    """Say what was found, what was expected and what to do; nothing was started."""

    exit_code = 2


class NothingFits(AutotuneError):
    """Say that no candidate fits the budget, how near the nearest came and what would help."""

    exit_code = 3


class EnvironmentUnable(AutotuneError):
    """Say what this machine or installation lacks."""

    exit_code = 4


class NotBuiltYet(EnvironmentUnable):
    """Name a station of the pipeline that this version does not have."""


class ToolFailure(AutotuneError):
    """Report a failure of autotune itself, with the place of its log."""

    exit_code = 5


class Interrupted(AutotuneError):
    """Report that the run was asked to stop; what was finished is on disk."""

    exit_code = 130


def nearest(name: str, known: list[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name most like ``name``, else ``""``."""
    match = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {match[0]!r}?" if match else ""


def disk_full(error: BaseException) -> EnvironmentUnable | None:
    """Return what to say where a full disk or a used-up quota is behind an error, else None.

    Args:
        error: as it was caught; what it was raised from is looked at too.
    """
    behind: BaseException | None = error
    while behind is not None:
        for number in (errno.ENOSPC, errno.EDQUOT):
            words = os.strerror(number)
            # Libraries in other languages only pass on the words.
            if getattr(behind, "errno", None) == number or words in str(behind):
                file = getattr(behind, "filename", None)
                where = f" at {file}" if file else ""
                return EnvironmentUnable(
                    f"the disk is full{where}: {words}.", "Make room and try again."
                )
        behind = behind.__cause__ or behind.__context__
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's words, its class's name where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
