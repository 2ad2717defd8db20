"""A result, written for people and for CI; and two results compared."""

from __future__ import annotations

from autotune.report.compare import Comparison, Row, compare
from autotune.report.comparison_markdown import render_comparison
from autotune.report.table import REPORTERS, Reporter
from autotune.report.thresholds import DEFAULT_THRESHOLDS, Threshold, parse_thresholds

__all__ = [
    "DEFAULT_THRESHOLDS",
    "REPORTERS",
    "Comparison",
    "Reporter",
    "Row",
    "Threshold",
    "compare",
    "parse_thresholds",
    "render_comparison",
]
