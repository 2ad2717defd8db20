"""Whoever watches a use case: the live table, a notebook, a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.core.candidate import Candidate
from autotune.core.result import TrialRecord

if TYPE_CHECKING:
    from autotune.use.planned import Plan


class Watcher:
    """Whoever watches a run: the live table, a notebook, a test. Silent by default."""

    def stage(self, text: str) -> None:
        """A station of the pipeline begins, in words."""

    def planned(self, plan: Plan) -> None:
        """Everything before the first probe is known."""

    def started(self, candidate: Candidate, role: str) -> None:
        """A probe starts."""

    def tick(self, seconds: float) -> None:
        """What runs now has been running this long."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Preparation has done this many rows of a total (0: not known)."""

    def finished(self, record: TrialRecord) -> None:
        """A probe ended and is on disk."""
