"""A comparison for a terminal: the verdict first, then every quantity in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.report.compare import Comparison
from autotune.report.comparison_markdown import HEAD, cells, verdict
from autotune.report.privacy import clean_text


def render(comparison: Comparison) -> str:
    """Write a comparison as plain text."""
    lines = [f"autotune compare: {verdict(comparison)}"]
    if comparison.refusals:
        lines += ["cannot be compared:", *_indented(comparison.refusals)]
    if comparison.failed:
        lines.append(f"does not run: {clean_text(comparison.failed)}")
    if comparison.rows:
        lines += _columns([HEAD, *(cells(row) for row in comparison.rows)])
    if comparison.differences:
        lines += ["also different:", *_indented(comparison.differences)]
    return "\n".join(lines) + "\n"


def _indented(texts: Sequence[str]) -> list[str]:
    return [f"  {clean_text(text)}" for text in texts]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
