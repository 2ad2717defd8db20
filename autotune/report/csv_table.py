"""The trials as a CSV table, one row each: for spreadsheets, pandas and notebooks.

Holds everything measured of a trial but its raw steps; those are in ``result.json``.
"""

from __future__ import annotations

from autotune.core.result import Result
from autotune.report.privacy import public
from autotune.report.trial_rows import trial_rows


def render(result: Result) -> str:
    """Write a header line and one line for every trial; an absent number is an empty field."""
    import pandas as pd

    rows = trial_rows(public(result))
    # Objects, so that a whole number stays one in a column where others are absent.
    frame = pd.DataFrame(rows, dtype=object)
    return frame.to_csv(index=False, lineterminator="\n") if rows else "number\n"
