"""Keeps prepared rows by content, so that nothing is tokenised twice, and away from user caches.

An entry is a folder named by what decides its tokens; it appears whole or not at all. Entries are
never changed and never deleted here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Raised when preparation itself changes what it writes.
FORMAT = 2
_CHUNK_BYTES = 2**20


def key_of(facts: Mapping[str, Any]) -> str:
    """Return 32 hex digits that are equal exactly when the facts are (JSON values)."""
    text = json.dumps({"format": FORMAT, **facts}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_files(files: list[Path]) -> str:
    """Return a hash of the contents of files, in order."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}:{path.stat().st_size};".encode())
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def entry_of(cache_dir: Path, key: str) -> Path | None:
    """Return the folder of a finished entry, None when there is none."""
    entry = cache_dir / "prepared" / key
    return entry if (entry / "profile.json").is_file() else None


@contextmanager
def new_entry(cache_dir: Path, key: str) -> Iterator[Path]:
    """Yield a folder to fill; when the block ends well it becomes the entry, else it vanishes."""
    home = cache_dir / "prepared"
    home.mkdir(parents=True, exist_ok=True)
    building = home / f".{key}.{uuid.uuid4().hex[:8]}"
    building.mkdir()
    try:
        yield building
        try:
            building.rename(home / key)
        except OSError:
            # another process finished the same entry first: its content is equal
            if entry_of(cache_dir, key) is None:
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def publish(entry: Path, out_dir: Path) -> None:
    """Put an entry's files into a folder, as hard links where the file system allows it."""
    for source in sorted(entry.rglob("*")):
        target = out_dir / source.relative_to(entry)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


@contextmanager
def private_caches(scratch: Path) -> Iterator[None]:
    """Keep the data set library's files in ``scratch`` and its telemetry off while rows are made.

    Its temporary folder is made at first use, lives as long as the process and is removed by the
    library at exit; so ``scratch`` must outlive the block.
    """
    import datasets
    import huggingface_hub.constants as hub

    scratch.mkdir(parents=True, exist_ok=True)
    cached, telemetry = datasets.is_caching_enabled(), hub.HF_HUB_DISABLE_TELEMETRY
    temporary = tempfile.tempdir
    hub.HF_HUB_DISABLE_TELEMETRY = True
    tempfile.tempdir = str(scratch)
    datasets.disable_caching()
    try:
        yield
    finally:
        hub.HF_HUB_DISABLE_TELEMETRY = telemetry
        tempfile.tempdir = temporary
        if cached:
            datasets.enable_caching()
