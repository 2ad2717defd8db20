"""Where caches are kept when the usual place cannot be written to."""

from __future__ import annotations

import tempfile
from pathlib import Path

import platformdirs
import pytest

from autotune.core.errors import EnvironmentUnable
from autotune.intake.cache import cache_dir, home_cache_refused


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOTUNE_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def home_is(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(folder / name))


def test_a_home_that_can_be_written_to_has_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home_is(monkeypatch, tmp_path / "home" / ".cache")
    assert tmp_path / "home" / ".cache" / "autotune" == cache_dir()
    assert "" == home_cache_refused()
    assert not (tmp_path / "home").exists()


def test_a_home_that_cannot_be_written_to_is_replaced_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("a file: nothing can be made below it", encoding="utf-8")
    home_is(monkeypatch, tmp_path / "home")
    found = cache_dir()
    assert tmp_path == found.parent
    assert 0o700 == found.stat().st_mode & 0o777
    assert str(found) in home_cache_refused()
    assert "AUTOTUNE_CACHE" in home_cache_refused()


def test_a_folder_that_was_named_is_never_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentUnable, match=r"AUTOTUNE_CACHE is .* cannot be written to"):
        cache_dir()
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "new" / "cache"))
    assert tmp_path / "new" / "cache" == cache_dir()


def test_without_any_place_the_sentence_says_what_to_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    home_is(monkeypatch, tmp_path / "file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(EnvironmentUnable, match="AUTOTUNE_CACHE"):
        cache_dir()
