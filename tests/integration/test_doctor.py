"""``autotune doctor`` proves what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import autotune

pytestmark = pytest.mark.integration


def test_doctor_proves_warm_and_cold_probes_and_names_what_is_missing(tmp_path: Path) -> None:
    done = autotune("doctor", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    works = {c["name"].split()[0]: c["works"] for c in found["checks"]}
    assert works["warm"] and works["cold"]
    assert {"torch", "trl", "transformers"} <= set(found["environment"]["versions"])
    assert any("no accelerator" in m or "is not installed" in m for m in found["missing"])
    assert list(tmp_path.iterdir()) == []
