"""Time for one pass against peak memory: one point for every probe, crosses for what did not fit.

Text from outside is escaped, because plotly reads tags in labels.
"""

from __future__ import annotations

from html import escape
from typing import Any

from autotune.core.kept_words import kept_words
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes, show_duration
from autotune.report import palette
from autotune.report.figure import (
    Chart,
    base_layout,
    budget_marks,
    checked,
    is_near,
    memory_unit,
    peak_bytes,
    time_unit,
)
from autotune.report.summary import knob_text, reference_name

_NEAR = "Crosses on top did not fit; the shaded band is the headroom that is kept free."


def pareto(result: Result) -> Chart | None:
    """Time for one pass against peak memory, one point for every probe; None without a fit."""
    fitting = [
        t
        for t in result.trials
        # Confirmations are the same candidates once more.
        if t.estimate is not None and peak_bytes(t) is not None and t.role != "confirmation"
    ]
    if not fitting:
        return None
    highest = max(peak_bytes(t) or 0 for t in fitting)
    misfits = [t for t in result.trials if t.report.ending.outcome.is_memory]
    near = bool(misfits) or is_near(result.budget.total_bytes, highest)
    unit, memory_name = memory_unit(max(highest, result.budget.total_bytes if near else 0))
    time_scale, time_name = time_unit(max(_score(t) for t in fitting))
    top = max(_score(t) for t in fitting) * 1.1 / time_scale

    def points(trials: list[TrialRecord], name: str, **marker: Any) -> dict[str, Any]:
        return {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [(peak_bytes(t) or 0) / unit for t in trials],
            "y": [_score(t) / time_scale for t in trials],
            "hovertext": [_hover(t, result) for t in trials],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": marker,
        }

    special = {result.best, result.reference}
    front = _front(fitting)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best for its memory",
            "x": [(peak_bytes(t) or 0) / unit for t in front],
            "y": [_score(t) / time_scale for t in front],
            "hoverinfo": "skip",
            "line": {"color": palette.FRONT, "width": 2, "dash": "dot"},
        },
    ]
    edge = {"width": 1, "color": palette.SURFACE}
    others = [t for t in fitting if t.candidate.key not in special]
    if others:
        data.append(points(others, "fits", color=palette.TRIAL, size=11, line=edge))
    if misfits:
        data.append(_misfits(misfits, result, unit, top))
    for trial, name, colour, symbol in (
        (result.reference_trial, reference_name(result), palette.REFERENCE, "diamond"),
        (result.best_trial, "chosen", palette.BEST, "star"),
    ):
        if trial in fitting:
            size = 20 if symbol == "star" else 15
            data.append(points([trial], name, color=colour, symbol=symbol, size=size, line=edge))
    layout = base_layout(f"peak memory ({memory_name})", f"time for one pass ({time_name})")
    layout["yaxis"]["rangemode"] = "tozero"
    layout |= budget_marks(result.budget, unit) if near else {}
    return Chart(
        "pareto",
        "Time against memory",
        "Further down is faster, further left needs less memory. "
        + (_NEAR if near else f"The budget, {show_bytes(result.budget.total_bytes)}, is far off."),
        f"{len(fitting)} probes that fit and {len(misfits)} that did not, "
        "time for one pass against peak memory",
        checked(data, layout),
    )


def _misfits(trials: list[TrialRecord], result: Result, unit: float, top: float) -> dict[str, Any]:
    least, most = result.budget.usable_bytes, result.budget.total_bytes * 1.5
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "does not fit",
        # What needs far more would squeeze everything else together; its hover has the number.
        "x": [min(max(t.report.needed_bytes or least, least), most) / unit for t in trials],
        "y": [top] * len(trials),
        "hovertext": [_hover(t, result) for t in trials],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": palette.MISFIT, "symbol": "x", "size": 10},
    }


def _hover(trial: TrialRecord, result: Result) -> str:
    lines = [f"<b>#{trial.number} {trial.role}</b>"]
    lines += [escape(part) for part in knob_text(trial, result).split(", ")]
    peak, estimate = peak_bytes(trial), trial.estimate
    if peak is not None:
        lines.append(f"peak {show_bytes(peak)}")
    if estimate is not None:
        lines.append(f"{show_duration(estimate.pass_seconds)} for one pass")
        lines.append(f"{estimate.useful_tokens_per_s:,.0f} useful tokens/s")
        lines.append(kept_words(result, trial))
    else:
        ending = trial.report.ending
        lines.append(escape(f"{ending.outcome.value}: {ending.reason}"))
    if trial.report.needed_bytes is not None:
        lines.append(f"needs at least {show_bytes(trial.report.needed_bytes)}")
    return "<br>".join(lines)


def _front(trials: list[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that no other beats in both memory and time, by memory."""
    front: list[TrialRecord] = []
    for trial in sorted(trials, key=lambda t: (peak_bytes(t) or 0, _score(t))):
        if not front or _score(trial) < _score(front[-1]):
            front.append(trial)
    return front


def _score(trial: TrialRecord) -> float:
    return trial.estimate.score_seconds if trial.estimate else 0.0
