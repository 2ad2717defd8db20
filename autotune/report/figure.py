"""What the charts of the report page share: axes, marks, notes, and plotly's own check.

In the light colours of the palette. Only marks of plotly's basic bundle are used: points, lines,
bars.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from autotune.core.job import Budget
from autotune.core.result import TrialRecord
from autotune.report import palette


@dataclass(frozen=True)
class Key:
    """A table under a chart that is its legend and holds its numbers.

    Args:
        heads: titles of the columns of numbers.
        rows: colour (a name of `palette.NAMES`), what it stands for, and a text per column.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Args:
        name: its id in the page.
        title: heading above it.
        caption: what it shows and how to read it, one or two sentences.
        label: what it says, for those who cannot see it.
        figure: plotly's JSON: ``data`` and ``layout``.
        key: the table that is its legend; None where plotly draws one.
    """

    name: str
    title: str
    caption: str
    label: str
    figure: dict[str, Any]
    key: Key | None = None


def peak_bytes(trial: TrialRecord) -> int | None:
    """Return the peak that is held against the budget."""
    measurement = trial.report.measurement
    return measurement.peaks.deciding_bytes if measurement else None


def memory_unit(largest: int) -> tuple[float, str]:
    """Return bytes per unit and the unit's name, fit for a largest value in bytes."""
    return (2.0**30, "GiB") if largest >= 2**30 else (2.0**20, "MiB")


def time_unit(longest: float) -> tuple[float, str]:
    """Return seconds per unit and the unit's name, fit for a longest time in seconds."""
    if longest >= 2 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if longest >= 120 else (1.0, "seconds")


def base_layout(x_title: str, y_title: str) -> dict[str, Any]:
    """Return a layout with titled axes, no background, and nothing that takes the scroll."""
    axis = {
        "gridcolor": palette.LINE,
        "linecolor": palette.LINE,
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": palette.MUTED, "size": 13, "family": "system-ui, sans-serif"},
        "margin": {"l": 8, "r": 12, "t": 56, "b": 8},
        "xaxis": {**axis, "title": {"text": x_title, "font": {"size": 13}}},
        "yaxis": {**axis, "title": {"text": y_title, "font": {"size": 13}}},
        "hoverlabel": {
            "bgcolor": palette.SURFACE,
            "bordercolor": palette.LINE,
            "font": {"color": palette.INK, "size": 13},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.07, "yanchor": "bottom"},
        # Without this a finger on the chart drags it instead of scrolling the page.
        "dragmode": False,
    }


def is_near(budget: int, peak: int) -> bool:
    """Say whether a budget and the highest peak, in bytes, can share an axis."""
    return budget <= 2.5 * peak


def budget_marks(budget: Budget, unit: float) -> dict[str, Any]:
    """Return the layout's marks of a budget on an x axis of memory.

    Args:
        budget: the budget and its headroom.
        unit: bytes in one unit of the axis.
    """
    usable, total = budget.usable_bytes / unit, budget.total_bytes / unit
    return {
        "shapes": [band(usable, total), line(total, palette.BUDGET)],
        "annotations": [note(total, "budget")],
    }


def band(start: float, end: float) -> dict[str, Any]:
    """Shade the headroom between two values of x."""
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": start,
        "x1": end,
        "y0": 0,
        "y1": 1,
        "fillcolor": palette.HEADROOM,
        "line": {"width": 0},
        "layer": "below",
    }


def line(at: float, colour: str) -> dict[str, Any]:
    """Draw a line from bottom to top at a value of x."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": at,
        "x1": at,
        "y0": 0,
        "y1": 1,
        "line": {"color": colour, "width": 2},
    }


def note(
    at: float, text: str, colour: str = palette.BUDGET, level: int = 0, far: float = 0.0
) -> dict[str, Any]:
    """Write beside the upper end of a line, on the side where there is room.

    Args:
        at: the line's value of x.
        text: words, escaped here.
        colour: colour of the words.
        level: 0 lies on the plot, 1 above that.
        far: right end of the x axis; 0 always writes to the left.
    """
    return {
        "x": at,
        "xref": "x",
        "y": 1 + 0.08 * level,
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": "right" if at > 0.4 * far else "left",
        "text": escape(text),
        "showarrow": False,
        "font": {"color": colour, "size": 12},
    }


def checked(data: list[dict[str, Any]], layout: dict[str, Any]) -> dict[str, Any]:
    """Return the figure after plotly has checked every name and value in it."""
    import plotly.graph_objects as go

    figure = go.Figure(data=data, layout={**layout, "template": go.layout.Template()})
    checked: dict[str, Any] = figure.to_plotly_json()
    checked["layout"].pop("template", None)
    return checked
