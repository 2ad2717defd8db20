"""The cache of prepared rows stays within its bounds and gives up what is used least."""

from __future__ import annotations

import os
import time
from pathlib import Path

from autotune.dataset.store import entry_of, new_entry, publish, trim

LONG_AGO = time.time() - 7200.0


def filled(cache: Path, key: str, *, size: int = 100, age: int = 0) -> Path:
    """Make an entry that was used two hours and ``age`` seconds ago."""
    with new_entry(cache, key) as folder:
        (folder / "profile.json").write_text("x" * size, encoding="utf-8")
    entry = cache / "prepared" / key
    os.utime(entry, (LONG_AGO - age, LONG_AGO - age))
    return entry


def test_the_entries_used_least_lately_go_first(tmp_path: Path) -> None:
    old, middle, new = (filled(tmp_path, f"k{n}", age=n) for n in (3, 2, 1))
    assert [old] == trim(tmp_path, most_entries=2)
    assert not old.exists()
    assert middle.exists() and new.exists()


def test_using_an_entry_keeps_it(tmp_path: Path) -> None:
    filled(tmp_path, "old", age=9)
    other = filled(tmp_path, "other")
    assert entry_of(tmp_path, "old") is not None
    assert [other] == trim(tmp_path, most_entries=1)


def test_too_many_bytes_are_given_up_too(tmp_path: Path) -> None:
    entries = [filled(tmp_path, f"k{n}", size=100, age=n) for n in range(5)]
    assert entries[2:] == trim(tmp_path, most_bytes=250)


def test_what_was_used_just_now_is_never_deleted(tmp_path: Path) -> None:
    entry = filled(tmp_path, "k")
    os.utime(entry)
    assert [] == trim(tmp_path, most_entries=0, most_bytes=0)


def test_arrow_copies_are_bounded_and_forgotten_scratch_is_swept(tmp_path: Path) -> None:
    copy = tmp_path / "datasets" / "json" / "default-1"
    scratch = tmp_path / "scratch" / "hf_datasets-1"
    for folder in (copy, scratch):
        folder.mkdir(parents=True)
        os.utime(folder, (LONG_AGO - 100_000, LONG_AGO - 100_000))
    assert [copy] == trim(tmp_path, most_entries=0)
    assert not scratch.exists()


def test_published_rows_outlive_their_entry(tmp_path: Path) -> None:
    entry = filled(tmp_path, "k", size=3)
    publish(entry, tmp_path / "run")
    trim(tmp_path, most_entries=0)
    assert "xxx" == (tmp_path / "run" / "profile.json").read_text(encoding="utf-8")
