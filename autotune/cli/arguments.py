"""Arguments as the shell gave them: names that are no UTF-8 stop before anything is read.

Every document a run writes is UTF-8 and holds the names it was given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autotune.core.errors import BadInput

_RENAME = "Rename the file or folder, or give a link with another name."


def check_arguments(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Stop at the first name that is no UTF-8.

    Args:
        arguments: what follows ``autotune``.
        environment: environment variables; ``AUTOTUNE_CACHE`` names a folder.

    Raises:
        BadInput: an argument, the folder of caches or the current folder.
    """
    before = ""
    for argument in arguments:
        if not _is_utf8(argument):
            option, sign, value = argument.partition("=")
            option, value = (option, value) if sign and _is_utf8(option) else (before, argument)
            named = option if option.startswith("-") else "an argument"
            raise BadInput(f"{named} is '{_shown(value)}', which is no UTF-8.", _RENAME)
        before = argument
    folders = {"AUTOTUNE_CACHE": environment.get("AUTOTUNE_CACHE", "")}
    with suppress(FileNotFoundError):  # a folder that is gone is answered where it is needed
        folders["the current folder"] = str(Path.cwd())
    for what, folder in folders.items():
        if not _is_utf8(folder):
            raise BadInput(f"{what} is '{_shown(folder)}', which is no UTF-8.", _RENAME)


def _is_utf8(text: str) -> bool:
    """Return whether no byte of a name had to be smuggled in as a surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    return os.fsencode(text).decode("utf-8", "backslashreplace")
