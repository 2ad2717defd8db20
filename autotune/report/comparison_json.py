"""A comparison as JSON, for scripts."""

from __future__ import annotations

import dataclasses
import json

from autotune.report.compare import Comparison
from autotune.report.comparison_markdown import verdict
from autotune.report.privacy import clean

SCHEMA_VERSION = 1


def render(comparison: Comparison) -> str:
    """Write a comparison as one JSON object; absent numbers are null."""
    rows = [
        {**dataclasses.asdict(row), "change_ratio": row.change_ratio} for row in comparison.rows
    ]
    found = {
        "schema_version": SCHEMA_VERSION,
        "passed": comparison.passed,
        "verdict": verdict(comparison),
        "failed": comparison.failed,
        "refusals": list(comparison.refusals),
        "differences": list(comparison.differences),
        "rows": rows,
    }
    return json.dumps(clean(found), indent=1) + "\n"
