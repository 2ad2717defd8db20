"""The page of a forecast in a real headless Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.prediction import Forecast
from autotune.report import palette
from autotune.report.forecast_page import render
from tests.integration.test_report_page_browser import EVIL, browser, pytestmark, show
from tests.unit.report.test_report_forecast import MIB, forecast_of

__all__ = ["browser", "pytestmark"]  # a fixture and marks, found by name

FORECASTS = {
    "space": forecast_of,
    "one config": lambda: forecast_of(alone=True),
    "nothing fits": lambda: forecast_of(memory_bytes=300 * MIB),
    "hostile": lambda: forecast_of(model=EVIL, notices=(EVIL + "x" * 400,)),
}


def opened(
    browser: Any, folder: Path, forecast: Forecast, *, width: int = 1200, dark: bool = False
) -> None:
    file = folder / "predict.html"
    file.write_text(render(forecast), encoding="utf-8")
    show(browser, file, width=width, dark=dark)


@pytest.mark.parametrize("name", list(FORECASTS))
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_draws_without_an_error_and_without_overflow(
    browser: Any, tmp_path: Path, name: str, width: int
) -> None:
    opened(browser, tmp_path, FORECASTS[name](), width=width)
    assert [] == browser.get_log("browser")
    assert width >= browser.execute_script("return document.documentElement.scrollWidth")
    drawn = "return document.querySelectorAll('[data-chart] .main-svg:first-child').length"
    assert 2 == browser.execute_script(drawn)
    assert browser.execute_script("return window.pwned === undefined")
    loaded = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [] == [n for n in browser.execute_script(loaded) if not n.startswith("data:")]


def test_the_points_are_the_candidates_and_dark_surroundings_change_their_colour(
    browser: Any, tmp_path: Path
) -> None:
    forecast = forecast_of()
    opened(browser, tmp_path, forecast, dark=True)
    points = "return document.querySelectorAll('#chart-pareto .points path').length"
    assert len(forecast.predictions) == browser.execute_script(points)
    script = "return document.getElementById('chart-split').data.map(t => t.marker.color)"
    assert set(browser.execute_script(script)) <= {palette.DARK[c] for c in palette.PARTS.values()}
