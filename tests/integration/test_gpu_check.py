"""``make gpu-check`` on a machine without a GPU: everything it does is imported and called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gpu.check import DRY_RUN, dry_run
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
    summary = json.loads((tmp_path / "evidence" / "summary.json").read_text(encoding="utf-8"))
    assert summary["device"] == DRY_RUN
    assert list(CHECKS) == [row["check"] for row in summary["checks"]]
    assert {[] == row["wrong"] for row in summary["checks"]} == {True}
    assert {f"{name}.json" for name in CHECKS} < {
        file.name for file in (tmp_path / "evidence").iterdir()
    }
