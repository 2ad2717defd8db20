"""``make gpu-check`` on a machine without a GPU: everything it does is imported and called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


def test_a_dry_run_calls_every_check_and_all_pass(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.check", "--out", str(tmp_path / "evidence")],
        cwd=ROOT,
        # A GPU that happens to be here is the business of `make gpu-check`.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "AUTOTUNE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr[-3000:]
    assert done.stdout.startswith("dry run: no GPU")
    summary = json.loads((tmp_path / "evidence" / "summary.json").read_text(encoding="utf-8"))
    names = {row["check"] for row in summary["checks"]}
    assert {[] == row["wrong"] for row in summary["checks"]} == {True}
    assert {f"{name}.json" for name in names} < {
        file.name for file in (tmp_path / "evidence").iterdir()
    }
    assert 9 == len(names)
