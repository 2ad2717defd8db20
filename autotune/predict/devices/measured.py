"""Keeps the rates that were measured on this machine between runs, in the cache folder.

They belong to a device, a torch version and a number of threads; another of any of these is
measured anew. Measures nothing itself.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from pydantic import ValidationError

from autotune.core.environment import Device
from autotune.core.rates import Rates


def read_rates(cache_dir: Path, device: Device, torch_version: str) -> Rates | None:
    """Return the stored rates of a device; None when there are none or they are damaged.

    Args:
        cache_dir: folder of caches shared between runs.
        device: the device.
        torch_version: version of torch that would compute.
    """
    try:
        return Rates.model_validate_json(_file(cache_dir, device, torch_version).read_bytes())
    except (OSError, ValidationError):
        return None


def write_rates(cache_dir: Path, device: Device, torch_version: str, rates: Rates) -> None:
    """Store the rates of a device; arguments as in `read_rates`. A full disk is no error."""
    file = _file(cache_dir, device, torch_version)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(rates.model_dump_json(indent=1) + "\n", encoding="utf-8")
        temporary.replace(file)
    except OSError:
        return


def _file(cache_dir: Path, device: Device, torch_version: str) -> Path:
    threads = os.environ.get("OMP_NUM_THREADS") or device.cores or 0
    key = f"{device.name}|{torch_version}|{threads}"
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "device"
    return cache_dir / "rates" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
