"""Builds the driver library of made-up machines (nvml_library.c), which the real pynvml loads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("nvml_library.c")
#: The name pynvml, and torch, look for; ``LD_LIBRARY_PATH`` of a process says where.
NAME = "libnvidia-ml.so.1"


def library_folder(parent: Path, *defines: str) -> Path:
    """Return a folder with the library; the test is skipped where there is no compiler.

    Args:
        parent: where the folder is made.
        defines: ``OLD_DRIVER`` or ``OLDER_DRIVER``.
    """
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = parent / "-".join(["nvml", *defines])
    if not (folder / NAME).exists():
        folder.mkdir(exist_ok=True)
        flags = [f"-D{define}" for define in defines]
        command = [compiler, "-shared", "-fPIC", *flags, "-o", str(folder / NAME), str(_SOURCE)]
        subprocess.run(command, check=True, timeout=60)
    return folder
