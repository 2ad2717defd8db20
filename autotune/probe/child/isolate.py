"""Cuts a probe off from the outside: no hub, no credentials. Preparation has both."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.knobs.isolation import SECRET_ENV


def cut_off(work_dir: Path) -> None:
    """Make this process unable to reach a hub, whatever the libraries read at import.

    huggingface_hub and datasets copy ``HF_HUB_OFFLINE`` into constants when they are imported,
    which in a forked child was long ago; the constants are set beside the variable.

    Args:
        work_dir: the folder of the probe; the data set library's temporary files go there too.
    """
    import datasets.config
    import datasets.fingerprint
    import huggingface_hub.constants

    # Only theirs: sockets of data loader workers need the short path of the system's own folder.
    # datasets asks the variable itself, once, and keeps the folder.
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(work_dir)
    datasets.fingerprint.get_temporary_cache_files_directory()
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    os.environ["HF_HUB_OFFLINE"] = "1"
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    datasets.config.HF_HUB_OFFLINE = True
    for name in SECRET_ENV:
        os.environ.pop(name, None)
