"""What peaks are made of, as stacked bars with a table of the sizes as their key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from autotune.core.result import Result
from autotune.core.units import show_alike
from autotune.report import palette
from autotune.report.anatomy import (
    BESIDE,
    COMPONENTS,
    OFFLOADED,
    UNTOLD,
    Part,
    anatomy,
    traced_peak,
)
from autotune.report.figure import Chart, Key, base_layout, checked, memory_unit
from autotune.report.side_by_side import side_by_side

#: Colour of every part, a key of `palette.PARTS`.
_COLOURS = {words: str(component) for component, words in COMPONENTS.items()} | {
    BESIDE: "rest",
    UNTOLD: "rest",
    OFFLOADED: "host",
}


def split(result: Result) -> Chart | None:
    """What the peaks of winner and reference are made of; None when nothing is known of them."""
    pairs = side_by_side(result)
    stacks = {name: parts for name, trial in pairs if (parts := anatomy(result, trial))}
    if not stacks:
        return None
    shown = [(name, trial) for name, trial in pairs if name in stacks]
    traced = {name: traced_peak(result, trial) for name, trial in shown}
    said = []
    if any(traced.values()):
        said.append("What tensors held when the trainer's own step, traced, was at its peak.")
        if any(part.name == BESIDE for parts in stacks.values() for part in parts):
            said.append("What was measured beyond it is the context and the allocator's gaps.")
    if not all(traced.values()):
        said.append(
            "The weights are counted; the step was not traced, so the rest is not told apart."
        )
    return stacked_bars(stacks, " ".join(said))


def stacked_bars(stacks: Mapping[str, Sequence[Part]], caption: str) -> Chart:
    """Draw one stacked bar for every peak.

    Args:
        stacks: the parts of each, by its name.
        caption: what the parts are and where they come from.
    """
    # What lies in host memory is drawn beside the peak and is no part of it.
    totals = {
        n: max(1, sum(p.size_bytes for p in parts if p.name != OFFLOADED))
        for n, parts in stacks.items()
    }
    unit, unit_name = memory_unit(max(totals.values()))
    together = ("", "together", tuple(show_alike(totals.values())))
    data, rows = [], []
    for part, colour in _COLOURS.items():
        found = [next((p for p in ps if p.name == part), None) for ps in stacks.values()]
        if not any(found):
            continue
        sizes = [one.size_bytes if one else 0 for one in found]
        texts = ["" if one is None else _text(one, totals) for one in found]
        if part == OFFLOADED:
            rows.append(together)
        rows.append((f"part-{colour}", part, tuple(texts)))
        marker: dict[str, object] = {"color": palette.PARTS[colour]}
        if part == OFFLOADED:
            marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.3}
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                # Bars are stacked from the bottom; the first is to lie on top.
                "y": [escape(name) for name in stacks][::-1],
                "x": [size / unit for size in sizes][::-1],
                "hovertext": [
                    f"{part} {text} ({size / total:.0%})"
                    for size, text, total in zip(sizes, texts, totals.values(), strict=True)
                ][::-1],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "marker": marker,
            }
        )
    layout = base_layout(unit_name, "")
    layout |= {"barmode": "stack", "showlegend": False, "bargap": 0.35}
    layout["margin"] = {**layout["margin"], "t": 8}
    rows = rows if together in rows else [*rows, together]
    return Chart(
        "split",
        "What the peak is made of",
        caption,
        "; ".join(f"{name}: {_listed(parts, totals)}" for name, parts in stacks.items()),
        checked(data, layout),
        Key(tuple(stacks), tuple(rows)),
    )


def _text(part: Part, totals: Mapping[str, int]) -> str:
    """Write a part's size in the unit of the largest total, with its dtype."""
    size = show_alike([part.size_bytes, max(totals.values())])[0]
    return f"{size} {part.dtype}".rstrip()


def _listed(parts: Sequence[Part], totals: Mapping[str, int]) -> str:
    return ", ".join(f"{part.name} {_text(part, totals)}" for part in parts)
