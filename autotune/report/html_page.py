"""A result as one self-contained HTML page: readable offline, on a phone, in light and in dark."""

from __future__ import annotations

from autotune.core.result import Result
from autotune.report.charts import charts
from autotune.report.page_model import page_values
from autotune.report.page_shell import render_page
from autotune.report.privacy import public


def render(result: Result) -> str:
    """Write the page."""
    shown = public(result)
    return render_page("page.html.j2", charts(shown), page_values(shown), table=True)
