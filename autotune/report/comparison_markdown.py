"""A comparison as Markdown: the verdict first, then every quantity."""

from __future__ import annotations

from autotune.core.units import show_bytes, show_duration
from autotune.report.compare import Comparison, Row
from autotune.report.markdown import code, fitted, table, text
from autotune.report.privacy import clean_text
from autotune.report.summary import ABSENT

#: Titles of the table of quantities.
HEAD = ("quantity", "baseline", "now", "change", "noise", "allowed", "verdict")
_SYMBOLS = {
    "regression": "❌ regression",
    "within noise": "⚠️ within noise",
    "too noisy": "⚠️ too noisy to tell",
    "ok": "✅ ok",
    "not checked": "",
}


def render_comparison(comparison: Comparison) -> str:
    """Write a comparison for a pull-request comment or a CI step summary."""
    parts = [f"### autotune compare: {verdict(comparison)}"]
    parts += [_list("Cannot be compared", comparison.refusals)]
    parts += [text(clean_text(f"Does not run: {comparison.failed}"))] if comparison.failed else []
    if comparison.rows:
        parts.append(table(HEAD, [_markdown_cells(row) for row in comparison.rows]))
    parts.append(_list("Also different", comparison.differences))
    return fitted([part for part in parts if part])


def verdict(comparison: Comparison) -> str:
    """Say in a few words what came out."""
    if comparison.refusals:
        return "no verdict"
    if comparison.failed:
        return "the configuration does not run"
    if comparison.regressions:
        return f"{len(comparison.regressions)} regression(s)"
    return "no regression"


def _list(title: str, lines: tuple[str, ...]) -> str:
    items = [f"- {text(clean_text(line))}" for line in lines]
    return "\n".join([f"{title}:", "", *items]) if items else ""


def cells(row: Row) -> tuple[str, ...]:
    """Write one quantity under `HEAD`, as plain text."""
    change = row.change_ratio
    return (
        row.name,
        _show(row.name, row.baseline),
        _show(row.name, row.current),
        ABSENT if change is None else f"{change:+.1%}",
        f"± {_show(row.name, row.noise)}" if _tells(row) else "",
        (row.limit or "").rpartition(":")[2],
        row.verdict,
    )


def _tells(row: Row) -> bool:
    """Whether the noise is more than rounding."""
    return row.noise > 1e-4 * abs(row.baseline or 0.0)


def _markdown_cells(row: Row) -> tuple[str, ...]:
    name, *rest, _ = cells(row)
    return (code(name), *rest, _SYMBOLS[row.verdict])


def _show(name: str, value: float | None) -> str:
    if value is None:
        return ABSENT
    if name.startswith("peak_memory"):
        return show_bytes(int(value))
    # Below a hundred it is a multiple of the reference candidate, not a rate.
    if name == "throughput":
        return f"{value:,.0f} tokens/s" if value >= 100 else f"{value:.3g}"
    return show_duration(value)
