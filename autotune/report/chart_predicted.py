"""What was predicted of candidates against what their probes measured: peaks and times.

Shows what was said before a probe. A trace made after the search, which no probe corrected, stands
in where nothing was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.report import palette
from autotune.report.anatomy import measured_peak
from autotune.report.figure import Chart, base_layout, checked, memory_unit, time_unit
from autotune.report.summary import knob_text

#: Roles of probes that were predicted and measured once each.
_ROLES = ("baseline", "search")


@dataclass(frozen=True)
class _Point:
    """One quantity of one trial, in bytes or seconds; the band is what was said to be 90 % sure."""

    measured: float
    predicted: float
    low: float
    high: float
    hover: str


def predicted_peaks(result: Result) -> Chart | None:
    """Predicted against measured peaks; None without any."""
    points = []
    before = any(t.prediction for t in _measured(result))
    for trial in _measured(result):
        peak = measured_peak(result, trial)
        expected, traced = trial.prediction, result.traced.get(trial.candidate.key)
        if not peak:
            continue
        if expected is not None:
            said = (expected.peak_bytes, expected.low_bytes, expected.high_bytes)
        elif traced is not None and not before:
            said = (traced.peak_bytes, traced.peak_bytes, traced.peak_bytes)
        else:
            continue
        hover = _hover(trial, result, show_bytes(said[0]), show_bytes(peak))
        points.append(_Point(peak, *said, hover))
    if not points:
        return None
    unit, name = memory_unit(int(max(p.high for p in points)))
    how = (
        "Said before each probe, corrected by the ones before it; bars are the 90 % band."
        if before
        else "Nothing was predicted before the probes, which cost less than tracing; these peaks "
        "were traced afterwards and are not corrected."
    )
    more = f" {len(result.gated)} more were predicted not to fit and not probed."
    return _chart(
        "predicted-peak",
        "Predicted against measured: peak",
        f"{how} {_misses(points)}{more if result.gated else ''}",
        points,
        (unit, name),
    )


def predicted_times(result: Result) -> Chart | None:
    """Predicted against measured time for one pass; None without any."""
    points = []
    for trial in _measured(result):
        expected, estimate = trial.prediction, trial.estimate
        if expected is None or estimate is None:
            continue
        seconds, band = expected.score_seconds, 1.0 + expected.time_band_ratio
        took = estimate.score_seconds
        hover = _hover(trial, result, show_duration(seconds), show_duration(took))
        points.append(_Point(took, seconds, seconds / band, seconds * band, hover))
    if not points:
        return None
    longest = max(max(p.measured, p.predicted) for p in points)
    return _chart(
        "predicted-time",
        "Predicted against measured: time",
        f"Time for one pass, said before each probe; bars are the 90 % band. {_misses(points)}",
        points,
        time_unit(longest),
    )


def absent(result: Result) -> str:
    """Say why there is nothing to hold against what was measured; empty when there is."""
    if predicted_peaks(result) is not None or not result.trials:
        return ""
    return (
        "Predicted against measured: nothing was predicted in this run, because its probes cost "
        "less than tracing them would have, or the step could not be traced."
    )


def _measured(result: Result) -> list[TrialRecord]:
    return [t for t in result.trials if t.role in _ROLES and t.estimate is not None]


def _hover(trial: TrialRecord, result: Result, predicted: str, measured: str) -> str:
    lines = [f"<b>#{trial.number}</b>"]
    lines += [escape(part) for part in knob_text(trial, result).split(", ")]
    return "<br>".join([*lines, f"predicted {predicted}", f"measured {measured}"])


def _misses(points: Sequence[_Point]) -> str:
    off = [abs(p.predicted / p.measured - 1.0) for p in points if p.measured]
    if len(off) == 1:
        return f"Off by {show_ratio(off[0])} (one probe)."
    middle, most = show_ratio(median(off)), show_ratio(max(off))
    return f"Off by {middle} in the median, {most} at most ({len(off)} probes)."


def _chart(
    name: str, title: str, caption: str, points: Sequence[_Point], unit: tuple[float, str]
) -> Chart:
    scale, unit_name = unit
    # A band far beyond everything measured would squeeze the points into a corner.
    end = 1.15 * max(max(p.measured, p.predicted) for p in points) / scale
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, end],
            "y": [0, end],
            "hoverinfo": "skip",
            "line": {"color": palette.MUTED, "width": 1, "dash": "dot"},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": [p.measured / scale for p in points],
            "y": [p.predicted / scale for p in points],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [(p.high - p.predicted) / scale for p in points],
                "arrayminus": [(p.predicted - p.low) / scale for p in points],
                "thickness": 1,
                "width": 0,
                "color": palette.TRIAL,
            },
            "hovertext": [p.hover for p in points],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {
                "color": palette.BEST,
                "size": 9,
                "line": {"width": 1, "color": palette.SURFACE},
            },
        },
    ]
    layout = base_layout(f"measured ({unit_name})", f"predicted ({unit_name})")
    layout["showlegend"] = False
    layout["margin"] = {**layout["margin"], "t": 8}
    for axis in ("xaxis", "yaxis"):
        layout[axis]["range"] = [0, end]
    said = f"{len(points)} probes, predicted against measured; on the dotted line both are equal"
    return Chart(name, title, caption, said, checked(data, layout))
