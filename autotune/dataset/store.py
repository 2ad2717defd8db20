"""Keeps prepared rows by content, so that nothing is tokenised twice, and away from user caches.

An entry is a folder named by what decides its tokens; it appears whole or not at all and is never
changed. The entries used least lately are deleted when there are too many or they are too large.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Raised when preparation itself changes what it writes.
FORMAT = 7
#: Most entries, and most bytes, that are kept of prepared rows and of Arrow copies, each.
MOST_ENTRIES = 64
MOST_BYTES = 10 * 2**30
#: What was used this lately is never deleted: another run may be about to read it.
_IN_USE_SECONDS = 3600.0
#: Scratch folders of processes that were killed are swept after this long.
_SCRATCH_SECONDS = 24 * 3600.0
_CHUNK_BYTES = 2**20


def key_of(facts: Mapping[str, Any]) -> str:
    """Return 32 hex digits that are equal exactly when the facts are (JSON values)."""
    text = json.dumps({"format": FORMAT, **facts}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_files(files: list[Path]) -> str:
    """Return a hash of the contents of files, in order."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(os.fsencode(path.name) + f":{path.stat().st_size};".encode())
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def entry_of(cache_dir: Path, key: str) -> Path | None:
    """Return the folder of a finished entry and note its use, None when there is none."""
    entry = cache_dir / "prepared" / key
    if not (entry / "profile.json").is_file():
        return None
    os.utime(entry)
    return entry


def trim(
    cache_dir: Path,
    *,
    most_entries: int = MOST_ENTRIES,
    most_bytes: int = MOST_BYTES,
    in_use_seconds: float = _IN_USE_SECONDS,
) -> list[Path]:
    """Delete what was used least lately until the cache is within its bounds.

    Rows that a run has published stay with the run: its files are links of their own.

    Args:
        cache_dir: folder of prepared rows by content.
        most_entries: most entries to keep, of each kind.
        most_bytes: most bytes to keep, of each kind.
        in_use_seconds: what was used within this time is kept.

    Returns:
        The folders that were deleted.
    """
    now = time.time()
    deleted = []
    for pattern in ("prepared/[!.]*", "datasets/*/*"):
        entries = [entry for entry in cache_dir.glob(pattern) if entry.is_dir()]
        used = {entry: _used(entry) for entry in entries}
        entries.sort(key=lambda entry: used[entry], reverse=True)
        total = 0
        for number, entry in enumerate(entries):
            total += sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
            beyond = number >= most_entries or total > most_bytes
            if beyond and now - used[entry] > in_use_seconds:
                shutil.rmtree(entry, ignore_errors=True)
                deleted.append(entry)
    for left in (*cache_dir.glob("scratch/*"), *cache_dir.glob("prepared/.*")):
        if now - _used(left) > _SCRATCH_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    return deleted


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


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
