"""Cuts a probe off from the outside: no hub, no credentials, one device. Preparation has all."""

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


def see_one_device(device: str) -> str:
    """Make one GPU visible to this process, before CUDA is opened.

    TRL's trainers refuse a process that sees several (``Trainer`` would wrap the model in
    ``DataParallel``).

    Args:
        device: ``cpu`` or ``cuda:i``, counted in the user's own ``CUDA_VISIBLE_DEVICES``.

    Returns:
        The device's name in this process from now on.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in visible.split(",")] if visible else []
    at = int(index or 0)
    os.environ["CUDA_VISIBLE_DEVICES"] = names[at] if at < len(names) else str(at)
    return "cuda:0"
