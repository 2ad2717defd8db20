"""The charts of the length page: row lengths, what a cut keeps, padding, and the fill of packs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from autotune.core.length_report import LengthReport
from autotune.report import palette
from autotune.report.figure import Chart, base_layout, checked, line, note

#: Colour of every packing strategy.
_STRATEGIES = {"bfd": palette.BEST, "bfd_split": palette.FRONT, "wrapped": palette.MISFIT}
_LINES = (palette.BEST, palette.MISFIT, palette.FRONT, palette.BUDGET, palette.REFERENCE)


def profile_charts(report: LengthReport) -> list[Chart]:
    """Return the charts of a report, in the order they are shown."""
    made = (_lengths(report), _kept(report), _padding(report), _fill(report))
    return [chart for chart in made if chart is not None]


def _lengths(report: LengthReport) -> Chart:
    histogram = report.histogram
    edges, total = histogram.edges, max(sum(histogram.rows), 1)
    usual = edges[-2] if len(edges) > 2 else edges[-1]
    # the last bin holds the longest rows; as wide as it is it would flatten all others
    width = max(b - a for a, b in pairwise(edges[:-1])) if len(edges) > 2 else edges[-1]
    spans = [(a, b if b - a <= width else a + width) for a, b in pairwise(edges)]
    data = [
        {
            "type": "bar",
            "name": "rows",
            "x": [(a + b) / 2 for a, b in spans],
            "y": [count / total * 100 for count in histogram.rows],
            "width": [b - a for a, b in spans],
            "customdata": [
                [a, b - 1, count]
                for (a, b), count in zip(pairwise(edges), histogram.rows, strict=True)
            ],
            "hovertemplate": "%{customdata[0]}–%{customdata[1]} tokens: %{customdata[2]} rows"
            "<extra></extra>",
            "marker": {"color": palette.TRIAL, "line": {"width": 0}},
        }
    ]
    layout = base_layout("tokens in a row", "share of the rows (%)")
    layout |= {"bargap": 0, "showlegend": False}
    far = spans[-1][1]
    marks = [(row.max_length, row.marks) for row in report.lengths if row.marks]
    near = [(at, names) for at, names in marks if at <= far]
    layout["shapes"] = [line(at, _colour(names)) for at, names in near]
    layout["annotations"] = [
        note(at, f"{' and '.join(names)}: {at}", _colour(names), level, far)
        for level, (at, names) in enumerate(near)
    ]
    layout["xaxis"]["range"] = [min(edges[0], *(at for at, _ in near), far), far * 1.01]
    said = "; ".join(f"{' and '.join(names)} {at}" for at, names in marks)
    longest = report.profile.quantiles.get("1.0", edges[-1] - 1)
    return Chart(
        "lengths",
        "How long the rows are",
        f"The last bar holds every row of {usual:,} tokens or more; the longest has {longest:,}.",
        f"{total} rows, the longest {longest} tokens; {said}",
        checked(data, layout),
    )


def _colour(names: tuple[str, ...]) -> str:
    return palette.BEST if "advised" in names else palette.MUTED


def _scatter(name: str, x: list[Any], y: list[float], colour: str, unit: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 7},
        "hovertemplate": f"%{{x}}: %{{y:.1f}} {unit}<extra>{name}</extra>",
    }


def _kept(report: LengthReport) -> Chart:
    at = [row.max_length for row in report.lengths]
    tokens = [row.tokens_kept_ratio * 100 for row in report.lengths]
    labels = [row.label_tokens_kept_ratio * 100 for row in report.lengths]
    data = [
        _scatter("tokens", at, tokens, palette.REFERENCE, "%"),
        _scatter("label tokens", at, labels, palette.BEST, "%"),
    ]
    layout = base_layout("max_length", "kept (%)")
    spoken = ", ".join(f"{n}: {value:.1f} %" for n, value in zip(at, labels, strict=True))
    return Chart(
        "kept",
        "What a cut keeps",
        "Of all tokens and of those that are trained on, unpacked.",
        f"Label tokens kept by max_length: {spoken}",
        checked(data, layout),
    )


def _padding(report: LengthReport) -> Chart:
    chosen = [row for row in report.lengths if row.marks] or list(report.lengths[-1:])
    data = []
    for row, colour in zip(chosen, _LINES, strict=False):
        batches = [str(batch) for batch in row.padding_ratio_by_batch]
        shares = [ratio * 100 for ratio in row.padding_ratio_by_batch.values()]
        data.append(_scatter(f"max_length {row.max_length}", batches, shares, colour, "%"))
    layout = base_layout("rows per micro-batch", "padding (%)")
    layout["xaxis"]["type"] = "category"
    layout["yaxis"]["rangemode"] = "tozero"
    return Chart(
        "padding",
        "Padding by batch size",
        "Share of what is computed that is padding, unpacked, rows drawn at random.",
        "Padding grows with the batch size; the numbers are in the table of the same name",
        checked(data, layout),
    )


def _fill(report: LengthReport) -> Chart | None:
    packed = [row for row in report.lengths if row.packing]
    if not packed:
        return None
    at = [str(row.max_length) for row in packed]
    data = []
    for strategy, colour in _STRATEGIES.items():
        fills = [
            entry.fill_ratio * 100
            for row in packed
            for entry in row.packing
            if entry.strategy == strategy
        ]
        data.append(
            {
                "type": "bar",
                "name": strategy,
                "x": at,
                "y": fills,
                "marker": {"color": colour, "line": {"width": 0}},
                "hovertemplate": f"%{{x}}: %{{y:.1f}} % full<extra>{strategy}</extra>",
            }
        )
    layout = base_layout("max_length", "fill of packed rows (%)")
    layout["xaxis"]["type"] = "category"
    layout["yaxis"]["range"] = [0, 104]
    return Chart(
        "fill",
        "How full packed rows are",
        "Share of the packed rows' capacity that holds tokens, by TRL's packing_strategy.",
        "Fill of packed rows by max_length and strategy; the numbers are in the table below",
        checked(data, layout),
    )
