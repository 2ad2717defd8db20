"""The peaks of reference and winner as bars, beside the budget."""

from __future__ import annotations

from autotune.core.result import Result
from autotune.core.units import show_bytes
from autotune.report import palette
from autotune.report.figure import (
    Chart,
    base_layout,
    budget_marks,
    checked,
    is_near,
    memory_unit,
    peak_bytes,
)
from autotune.report.summary import reference_name

_PEAKS = {
    "allocated_bytes": "allocated",
    "reserved_bytes": "reserved",
    "context_bytes": "context",
    "paged_bytes": "paged",
    "process_bytes": "process",
    "device_used_bytes": "device used",
}

_MEANS = {
    "allocated": "allocated is what tensors held",
    "reserved": "reserved what the allocator took",
    "context": "context what the process held beside it",
    "paged": "paged what a paged optimizer kept beside both",
    "process": "process what the system counts for it",
    "device used": "device used what everybody used",
}


def memory(result: Result) -> Chart | None:
    """The peaks of reference and winner as bars; None without a fit."""
    best, other = result.best_trial, result.reference_trial
    pairs = [(best, "chosen", palette.BEST)]
    if other is not None and result.best != result.reference:
        pairs.append((other, reference_name(result), palette.REFERENCE))
    series = [(t, n, c) for t, n, c in pairs if t is not None and t.report.measurement is not None]
    if not series:
        return None
    highest = max(peak_bytes(t) or 0 for t, _, _ in series)
    near = is_near(result.budget.total_bytes, highest)
    unit, unit_name = memory_unit(result.budget.total_bytes if near else highest)
    data, said = [], []
    # Bars are stacked from the bottom, so the winner is added last to lie on top.
    for trial, name, colour in reversed(series):
        measurement = trial.report.measurement
        peaks = measurement.peaks if measurement else None
        known = {
            word: value
            for field, word in _PEAKS.items()
            if (value := getattr(peaks, field, None)) is not None
        }
        said.append(f"{name}: " + ", ".join(f"{w} {show_bytes(v)}" for w, v in known.items()))
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": list(known)[::-1],
                "x": [value / unit for value in known.values()][::-1],
                "text": [show_bytes(value) for value in known.values()][::-1],
                "textposition": "auto",
                "hovertemplate": "%{y}: %{text}<extra>" + name + "</extra>",
                "marker": {"color": colour},
            }
        )
    shown = [word for word in _PEAKS.values() if any(word in trace["y"] for trace in data)]
    layout = base_layout(unit_name, "")
    layout["barmode"] = "group"
    layout["bargap"] = 0.25
    layout["legend"]["traceorder"] = "reversed"
    layout |= budget_marks(result.budget, unit) if near else {}
    return Chart(
        "memory",
        "Peak memory",
        f"Counted in {len(shown)} ways: {', '.join(_MEANS[word] for word in shown)}; "
        "all above the start of the process.",
        "; ".join(said[::-1]),
        checked(data, layout),
    )
