"""The charts of a forecast: time against memory with its band, and what the peaks are made of."""

from __future__ import annotations

from html import escape
from typing import Any

from autotune.core.prediction import Fit, Forecast, Prediction
from autotune.report import palette
from autotune.report.chart_split import stacked_bars
from autotune.report.figure import (
    Chart,
    base_layout,
    budget_marks,
    checked,
    is_near,
    memory_unit,
    time_unit,
)
from autotune.report.forecast_words import (
    FIT_WORDS,
    counts,
    differences,
    parts,
    peak_words,
    time_words,
)

#: What is drawn far beyond the budget squeezes everything else together.
_FAR = 2.5
_COLOURS = {Fit.FITS: palette.TRIAL, Fit.UNSURE: palette.BUDGET, Fit.HOPELESS: palette.MISFIT}


def forecast_charts(forecast: Forecast) -> list[Chart]:
    """Return the charts a forecast has numbers for."""
    if not forecast.predictions:
        return []
    return [_pareto(forecast), _split(forecast)]


def _pareto(forecast: Forecast) -> Chart:
    budget = forecast.budget
    near = [p for p in forecast.predictions if p.peak_bytes <= _FAR * budget.total_bytes]
    shown = near or list(forecast.predictions)
    highest = max(p.peak_bytes for p in shown)
    marked = is_near(budget.total_bytes, highest)
    unit, memory_name = memory_unit(max(highest, budget.total_bytes if marked else 0))
    time_scale, time_name = time_unit(max(p.score_seconds for p in shown))
    front = [p for p in forecast.front if p in shown]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best for its memory",
            "x": [p.peak_bytes / unit for p in front],
            "y": [p.score_seconds / time_scale for p in front],
            "hoverinfo": "skip",
            "line": {"color": palette.FRONT, "width": 2, "dash": "dot"},
        }
    ]

    def points(group: list[Prediction], name: str, colour: str, **marker: Any) -> None:
        if group:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [p.peak_bytes / unit for p in group],
                    "y": [p.score_seconds / time_scale for p in group],
                    "hovertext": [_hover(p, forecast) for p in group],
                    "hovertemplate": "%{hovertext}<extra></extra>",
                    "marker": {
                        "color": colour,
                        "line": {"width": 1, "color": palette.SURFACE},
                        **marker,
                    },
                }
            )

    own, best = forecast.own_prediction, forecast.fastest
    for fit in Fit:
        group = [p for p in shown if p.fit(budget) is fit and p not in (own, best)]
        points(group, FIT_WORDS[fit], _COLOURS[fit], size=9)
    for one, name, colour, symbol, size in (
        (own, "your config", palette.REFERENCE, "diamond", 15),
        (best, "fastest", palette.BEST, "star", 20),
    ):
        if one in shown:
            points([one], name, colour, symbol=symbol, size=size)
            data[-1]["error_x"] = _band(one, unit, colour)
    layout = base_layout(f"predicted peak memory ({memory_name})", f"one pass ({time_name})")
    layout["yaxis"]["rangemode"] = "tozero"
    layout |= budget_marks(budget, unit) if marked else {}
    left_out = len(forecast.predictions) - len(shown)
    return Chart(
        "pareto",
        "Time against memory",
        "Further down is faster, further left needs less memory. The bar through the fastest and "
        "through your own config is the 90 % band of the peak; the others' is in their hover."
        + (f" {left_out} far beyond the budget are not drawn." if left_out else ""),
        f"{counts(forecast)}; predicted time for one pass against predicted peak memory",
        checked(data, layout),
    )


def _band(one: Prediction, unit: float, colour: str) -> dict[str, Any]:
    """Return the 90 % band of a peak as a bar through its point."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [(one.high_bytes - one.peak_bytes) / unit],
        "arrayminus": [(one.peak_bytes - one.low_bytes) / unit],
        "thickness": 1.5,
        "width": 4,
        "color": colour,
    }


def _hover(one: Prediction, forecast: Forecast) -> str:
    lines = [escape(part) for part in differences(one.candidate, forecast).split(", ")]
    lines += [f"peak {peak_words(one)}", f"pass {time_words(one)}"]
    return "<br>".join([*lines, f"{one.useful_tokens_per_s:,.0f} useful tokens/s"])


def _split(forecast: Forecast) -> Chart:
    """The fastest that fits, the user's own and the smallest, as stacked bars."""
    named: dict[str, Prediction] = {}
    for name, one in (
        ("fastest", forecast.fastest),
        ("your config", forecast.own_prediction),
        ("smallest", forecast.nearest_miss),
    ):
        if one is not None and one not in named.values():
            named[name] = one
    return stacked_bars(
        {name: parts(one) for name, one in named.items()},
        "Tensors alive at the traced peak, and beside them what a process needs for its context "
        "and for the allocator's gaps.",
    )
