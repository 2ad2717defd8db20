"""What a run's folder shows while a search goes on and when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.errors import EnvironmentUnable
from autotune.core.result import read_result
from autotune.use.written import RunFolder
from tests.support.results import gpu_result


class Clock:
    """Seconds that pass: one every time somebody looks, and what the test adds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_reports_are_made_anew_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    clock = Clock()
    folder = RunFolder(tmp_path, clock)
    page = tmp_path / "report.html"

    def wrote(*, over: bool = False) -> bool:
        page.unlink(missing_ok=True)
        folder.write(gpu_result(), over=over)
        assert gpu_result() == read_result(tmp_path)
        assert (tmp_path / "best.yaml").exists()
        return page.exists()

    assert wrote(), "the first time"
    assert not wrote(), "making them took a second just now"
    assert wrote(over=True)
    assert not wrote()
    clock.now += 19.0  # a second is 5 % of 20
    assert wrote()


def test_what_cannot_be_written_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(EnvironmentUnable, match="cannot be written to") as caught:
        RunFolder(tmp_path).write(gpu_result(), over=False)
    assert f"autotune run --resume --out {tmp_path}" in str(caught.value.hint)
