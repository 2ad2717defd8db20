"""The page of a length report in a real headless Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.report.profile_page import render
from tests.integration.test_report_page_browser import browser, pytestmark
from tests.support.lengths import length_report

__all__ = ["browser", "pytestmark"]  # a fixture and marks, found by name


@pytest.mark.parametrize("width", [360, 1200])
def test_the_charts_are_drawn_and_nothing_runs_off_the_page(
    browser: Any, tmp_path: Path, width: int
) -> None:
    file = tmp_path / "lengths.html"
    file.write_text(render(length_report()), encoding="utf-8")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get(file.as_uri())
    drawn = browser.execute_script("return document.querySelectorAll('.chart svg.main-svg').length")
    assert drawn >= 4
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    assert [] == [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
