"""The table of reporters: a new one is one file and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.result import Result
from autotune.report import csv_table, html_page, junit, markdown


@dataclass(frozen=True)
class Reporter:
    """Describe one report format.

    Args:
        name: word after ``--format``.
        file_name: its file in a run's folder.
        what: what it is for, in a few words.
        render: makes the text of a result, whether or not something fits.
    """

    name: str
    file_name: str
    what: str
    render: Callable[[Result], str]


REPORTERS = {
    r.name: r
    for r in (
        Reporter("html", "report.html", "one page to look at", html_page.render),
        Reporter("markdown", "report.md", "pull-request comment", markdown.render),
        Reporter("csv", "trials.csv", "table of the trials", csv_table.render),
        Reporter("junit", "junit.xml", "test results for CI", junit.render),
    )
}
