"""The charts of the report page, in the order they are shown."""

from __future__ import annotations

from autotune.core.result import Result
from autotune.report.chart_lengths import lengths
from autotune.report.chart_memory import memory
from autotune.report.chart_pareto import pareto
from autotune.report.chart_predicted import predicted_peaks, predicted_times
from autotune.report.chart_split import split
from autotune.report.figure import Chart


def charts(result: Result) -> list[Chart]:
    """Return the charts a result has numbers for."""
    made = (
        pareto(result),
        split(result),
        memory(result),
        predicted_peaks(result),
        predicted_times(result),
        lengths(result),
    )
    return [chart for chart in made if chart is not None]
