"""A run's folder that cannot be written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.errors import EnvironmentUnable
from autotune.use.written import write_run
from tests.support.results import cpu_result


def test_what_cannot_be_written_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(EnvironmentUnable, match="cannot be written to") as caught:
        write_run(cpu_result(), tmp_path)
    assert f"autotune run --resume --out {tmp_path}" in str(caught.value.hint)
