"""The page of a length report in a real headless Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.report.profile_page import render
from tests.integration.test_report_page_browser import browser, pytestmark, show
from tests.support.lengths import length_report

__all__ = ["browser", "pytestmark"]  # a fixture and marks, found by name


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
def test_the_charts_are_drawn_and_nothing_runs_off_the_page(
    browser: Any, tmp_path: Path, width: int, dark: bool
) -> None:
    file = tmp_path / "lengths.html"
    file.write_text(render(length_report()), encoding="utf-8")
    show(browser, file, width=width, dark=dark)
    drawn = browser.execute_script("return document.querySelectorAll('.chart svg.main-svg').length")
    assert drawn >= 4
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    assert [] == browser.get_log("browser")
