"""The report page in a real headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.result import Result
from autotune.report import REPORTERS, palette
from tests.support.results import (
    cpu_result,
    gpu_result,
    nothing_fits_result,
    predicted_result,
    preference_result,
    with_best,
    with_job,
)

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="no chromium and chromedriver here (Debian: chromium, chromium-driver)",
    ),
]
EVIL = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"
RESULTS = {
    "predicted": predicted_result,
    "cpu": cpu_result,
    "dpo": lambda: preference_result(Trainer.DPO),
    "nothing": nothing_fits_result,
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


def opened(
    browser: Any, folder: Path, result: Result, *, width: int = 1200, dark: bool = False
) -> Any:
    """Open the page of a result at a width, in a colour scheme."""
    file = folder / "report.html"
    file.write_text(REPORTERS["html"].render(result), encoding="utf-8")
    return show(browser, file, width=width, dark=dark)


def show(browser: Any, file: Path, *, width: int, dark: bool = False) -> Any:
    """Open a page at a width, in a colour scheme."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get(file.as_uri())
    return browser


def column(browser: Any, number: int) -> list[str]:
    script = (
        "return [...document.querySelectorAll('#trials tbody tr')]"
        ".filter(r => !r.hidden).map(r => r.cells[arguments[0]].dataset.key)"
    )
    return list(browser.execute_script(script, number))


@pytest.mark.parametrize("name", list(RESULTS))
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_draws_without_an_error_and_without_overflow(
    browser: Any, tmp_path: Path, name: str, width: int
) -> None:
    opened(browser, tmp_path, RESULTS[name](), width=width)
    assert [] == browser.get_log("browser")
    size = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    scroll, client = browser.execute_script(size)
    assert scroll <= client <= width


def test_every_chart_is_drawn_with_its_marks(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, predicted_result())
    count = "return document.querySelectorAll(arguments[0]).length"
    assert 6 == browser.execute_script(count, "[data-chart] .main-svg:first-child")
    assert 7 == browser.execute_script(count, "#chart-pareto .points path")
    parts = browser.find_elements("css selector", ".chart-split .chart-key tbody tr")
    bars = "#chart-split .bars path:not([d='M0,0Z'])"
    assert 2 * (len(parts) - 1) == browser.execute_script(count, bars)
    for chart in ("predicted-peak", "predicted-time"):
        assert 5 == browser.execute_script(count, f"#chart-{chart} .points path")
    assert 8 == browser.execute_script(count, "#chart-memory .bars path")
    assert 60 <= browser.execute_script(count, "#chart-lengths .bars path")


def test_hovering_a_point_shows_the_candidate(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, gpu_result())
    script = (
        "const chart = document.getElementById('chart-pareto');"
        "Plotly.Fx.hover(chart, [{curveNumber: chart.data.length - 1, pointNumber: 0}]);"
        "return chart.querySelector('.hoverlayer').textContent"
    )
    text = browser.execute_script(script)
    assert "packing bfd" in text
    assert "7,420 useful tokens/s" in text


def test_the_table_sorts_both_ways_and_keeps_what_was_not_measured_last(
    browser: Any, tmp_path: Path
) -> None:
    opened(browser, tmp_path, gpu_result())
    button = browser.find_elements("css selector", "#trials th button")[2]
    button.click()
    up = column(browser, 2)
    button.click()
    down = column(browser, 2)
    numbers = [float(key) for key in up if key]
    assert sorted(numbers) == numbers
    assert numbers[::-1] == [float(key) for key in down if key]
    assert ["", "", "", ""] == up[len(numbers) :] == down[len(numbers) :]
    heads = browser.find_elements("css selector", "#trials th")
    assert "descending" == heads[2].get_attribute("aria-sort")


def test_the_table_filters_by_outcome(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, gpu_result())
    select = "option[value='oom_device']"
    browser.find_element("css selector", f"#outcome-filter {select}").click()
    assert ["2", "7"] == column(browser, 0)
    assert "2 of 10 shown" == browser.find_element("id", "shown").text


def test_dark_surroundings_change_page_and_charts(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, gpu_result(), dark=True)
    script = "return getComputedStyle(document.body).backgroundColor"
    dark = palette.DARK[palette.BACKGROUND]
    expected = ", ".join(str(int(dark[n : n + 2], 16)) for n in (1, 3, 5))
    assert f"rgb({expected})" == browser.execute_script(script)
    colours = browser.execute_script(
        "return document.getElementById('chart-memory').data.map(t => t.marker.color)"
    )
    assert [palette.DARK[palette.REFERENCE], palette.DARK[palette.BEST]] == colours
    key = browser.find_element("css selector", ".chart-split .chart-key .key")
    weights = palette.DARK[palette.PARTS["weights"]]
    shade = ", ".join(str(int(weights[n : n + 2], 16)) for n in (1, 3, 5))
    assert f"rgba({shade}, 1)" == key.value_of_css_property("background-color")


def test_hostile_names_are_shown_and_do_not_run(browser: Any, tmp_path: Path) -> None:
    long = EVIL + "x" * 400
    result = with_best(with_job(gpu_result(), model=EVIL), note=long, options={long: long})
    opened(browser, tmp_path, result.model_copy(update={"notices": (long,)}), width=400)
    assert browser.execute_script("return window.pwned === undefined")
    assert EVIL in browser.find_element("css selector", ".where").text
    assert [] == browser.find_elements("css selector", "main img")
    assert 400 == browser.execute_script("return document.documentElement.scrollWidth")


def test_the_page_loads_nothing(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, gpu_result())
    loaded = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [] == [n for n in browser.execute_script(loaded) if not n.startswith("data:")]
