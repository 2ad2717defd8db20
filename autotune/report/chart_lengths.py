"""How long the rows are, and where reference and winner cut them."""

from __future__ import annotations

from itertools import pairwise

from autotune.core.result import Result, TrialRecord
from autotune.report import palette
from autotune.report.figure import Chart, base_layout, checked, line, note


def lengths(result: Result) -> Chart | None:
    """How long the rows are and where the configurations cut; None without a histogram."""
    histogram = result.profile.length_histogram
    if histogram is None or sum(histogram.rows) == 0:
        return None
    edges, total = histogram.edges, sum(histogram.rows)
    widths = [b - a for a, b in pairwise(edges)]
    data = [
        {
            "type": "bar",
            "name": "rows",
            "x": [a + w / 2 for a, w in zip(edges, widths, strict=False)],
            "y": [rows / total * 100 for rows in histogram.rows],
            "width": widths,
            "customdata": [
                [a, b - 1, rows]
                for a, b, rows in zip(edges, edges[1:], histogram.rows, strict=False)
            ],
            "hovertemplate": "%{customdata[0]}–%{customdata[1]} tokens: %{customdata[2]} rows"
            "<extra></extra>",
            "marker": {"color": palette.TRIAL, "line": {"width": 0}},
        }
    ]
    layout = base_layout("tokens in a row", "share of the rows (%)")
    layout["bargap"] = 0
    layout["showlegend"] = False
    said = []
    marks = {}
    for trial, name, colour in (
        (result.reference_trial, "reference", palette.MUTED),
        (result.best_trial, "chosen", palette.BEST),
    ):
        cut = _cut(trial)
        if cut is not None:
            length, words = cut
            marks[length] = (f"{name} {words}", colour)
            said.append(f"{name} {words}")
    layout["margin"] = {**layout["margin"], "t": 16 + 20 * len(marks)}
    layout["shapes"] = [line(cut, colour) for cut, (_, colour) in marks.items()]
    far = max([edges[-1], *marks])
    layout["annotations"] = [
        note(cut, words, colour, level, far)
        for level, (cut, (words, colour)) in enumerate(marks.items())
    ]
    layout["xaxis"]["range"] = [0, far * 1.03]
    return Chart(
        "lengths",
        "How long the rows are",
        "Rows that are longer than max_length are cut there, or split or packed, as the "
        "configuration says.",
        f"{total} rows, the longest {result.profile.quantiles.get('1.0', edges[-1] - 1)} tokens; "
        + "; ".join(said),
        checked(data, layout),
    )


def _cut(trial: TrialRecord | None) -> tuple[int, str] | None:
    """Return where a trial cuts its rows, in tokens and in words; None where it does not."""
    if trial is None:
        return None
    if trial.pretruncate_tokens is not None:
        return trial.pretruncate_tokens, f"rows cut at {trial.pretruncate_tokens}"
    length = trial.options.get("max_length")
    return (length, f"max_length {length}") if isinstance(length, int) else None
