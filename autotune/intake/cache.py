"""Where what runs share is kept: prepared rows, measured rates, the demo model.

In many containers the home folder cannot be written to, or is another's: then a folder of the
user's own below the one for temporary files takes its place, and that is said.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from autotune.core.errors import EnvironmentUnable

_NAME_ONE = "Name a folder that can be written to in AUTOTUNE_CACHE."


def cache_dir() -> Path:
    """Return the folder of caches shared between runs (``AUTOTUNE_CACHE`` overrides it).

    Raises:
        EnvironmentUnable: there is none that can be written to.
    """
    named = os.environ.get("AUTOTUNE_CACHE")
    if named:
        if not _is_writable(Path(named)):
            raise EnvironmentUnable(
                f"AUTOTUNE_CACHE is {named}, which cannot be written to.", _NAME_ONE
            )
        return Path(named)
    return _spare() if home_cache_refused() else _home_cache()


def home_cache_refused() -> str:
    """Say that the user's own cache folder cannot be written to; empty where it can."""
    if os.environ.get("AUTOTUNE_CACHE") or _is_writable(_home_cache()):
        return ""
    return f"{_home_cache()} cannot be written to: caches are kept in {_spare()}. {_NAME_ONE}"


def _home_cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("autotune"))


def _spare() -> Path:
    folder = Path(tempfile.gettempdir()) / f"autotune-cache-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)  # others may look into the folder it is in
        if folder.stat().st_uid == os.getuid():
            return folder
    except OSError:
        pass
    raise EnvironmentUnable("no folder for caches can be written to.", _NAME_ONE)


def _is_writable(folder: Path) -> bool:
    """Whether a folder can be written to, or made."""
    there = next(
        p for p in (folder.absolute(), *folder.absolute().parents) if os.access(p, os.F_OK)
    )
    return os.access(there, os.W_OK | os.X_OK)
