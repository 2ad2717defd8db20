"""``make gpu-check`` on a machine without a GPU: everything it does is imported and called."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.gpu.check import DRY_RUN, dry_run, ended_in_time
from tests.gpu.checks import CHECKS
from tests.support.warm import Shared

pytestmark = pytest.mark.integration


def test_a_dry_run_calls_every_check_and_all_pass(
    shared: Shared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    code = dry_run(tmp_path / "evidence", list(CHECKS), shared)
    assert 0 == code, capsys.readouterr().out
    summary = json.loads((tmp_path / "evidence" / "gpu-check.json").read_text(encoding="utf-8"))
    assert summary["device"] == DRY_RUN
    assert list(CHECKS) == [row["check"] for row in summary["checks"]]
    assert {[] == row["wrong"] for row in summary["checks"]} == {True}
    assert {f"{name}.json" for name in CHECKS} < {
        file.name for file in (tmp_path / "evidence").iterdir()
    }
    assert list(CHECKS) == [name for name, kept in summary["evidence"].items() if kept]


def test_the_boxes_of_all_checks_together_leave_room_within_ten_minutes() -> None:
    assert sum(check.seconds for check in CHECKS.values()) <= 575


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("time.sleep(600)", "it was ended after the 5 s of its box"),
        ("os.abort()", "it ended with -6 before it was through; see check.log"),
    ],
)
def test_a_check_that_overruns_or_crashes_leaves_what_it_found(
    then: str, said: str, tmp_path: Path
) -> None:
    code = f"""
import os, time
from pathlib import Path
from tests.gpu.found import Found
found = Found(Path({str(tmp_path / "check.json")!r}))
found.keep("first", 1)
found.expect(False, "the second is wrong")
{then}
"""
    file = tmp_path / "check.json"
    wrong = ended_in_time([sys.executable, "-c", code], tmp_path / "check.log", 5.0, file)
    assert ["the second is wrong", said] == wrong
    assert {"first": 1} == json.loads(file.read_text(encoding="utf-8"))["evidence"]
