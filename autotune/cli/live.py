"""The live view of a run on stderr: a table that grows on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from autotune.cli.row_progress import RowsView
from autotune.cli.rows_plan import rows_lines
from autotune.cli.signals import how_to_stop
from autotune.cli.words import (
    accumulation_of,
    describe,
    misses_of,
    pass_of,
    peak_of,
    predicted_of,
    speed_of,
)
from autotune.core.candidate import Candidate
from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.core.units import show_bytes, show_duration
from autotune.study.choose import ranking
from autotune.study.proof import CONFIRMATION_ROUNDS
from autotune.study.refusals import is_refusal
from autotune.use.planned import Plan

_ROLE = {
    "baseline": "your config",
    "search": "",
    "confirmation": "confirming",
    "guard": "comparing",
    "verification": "verifying",
}
_STYLE = {Outcome.FITS: "green", Outcome.OOM_DEVICE: "yellow", Outcome.OOM_HOST: "yellow"}


class LiveView(RowsView):
    """Show what a run does while it does it."""

    def __init__(self, console: Console, *, plan_goes_elsewhere: bool = False) -> None:
        """Take the console of progress; it decides between a live table and lines.

        Args:
            console: where to.
            plan_goes_elsewhere: the plan is the result (``--dry-run``) and is not repeated here.
        """
        super().__init__(console)
        self._quiet = plan_goes_elsewhere
        self._plan: Plan | None = None
        self._trials: list[TrialRecord] = []
        self._start = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing; what was said stays above."""
        super().__exit__(kind, error, trace)
        if self._live is not None and error is not None and self._trials:
            self._console.print(trials_table(self._trials, self._console.width))

    def planned(self, plan: Plan) -> None:
        """Say what is known before the first probe."""
        self._plan = plan
        if self._quiet:
            return
        for line in plan_lines(plan):
            self._console.print(line, markup=False)
        if words := how_to_stop():
            self._console.print(f"note     {words}", markup=False)

    def started(self, candidate: Candidate, role: str) -> None:
        """Note which probe runs."""
        label = f"{_ROLE[role]}: " if _ROLE[role] else ""
        self.begin(label + describe(candidate))

    def finished(self, record: TrialRecord) -> None:
        """Add a probe to the view."""
        self._trials.append(record)
        if self._live is None:
            ending = record.report.ending
            words = [
                f"[{len(self._trials)}]",
                _ROLE[record.role] or "probe",
                describe(record.candidate, accumulation_of(record)),
                ending.outcome.value,
                f"peak {peak_of(record)}",
                f"{speed_of(record)} tok/s" if record.estimate else "",
                predicted_of(record),
                ending.reason,
            ]
            self._console.print("  ".join(w for w in words if w), markup=False)

    def __rich__(self) -> Any:
        """Return the live picture: finished probes, what runs now, time left."""
        picture = super().__rich__()
        if self._plan is None:
            return picture
        height = max(3, self._console.size.height - 9)
        table = trials_table(self._trials[-height:], self._console.width)
        return Group(table, picture, Text(self._summary(), style="dim"))

    def _summary(self) -> str:
        assert self._plan is not None
        probed = [t for t in self._trials if t.role in ("baseline", "search")]
        done = sum(not is_refusal(t) for t in probed)
        limit = self._plan.limits
        total = min(limit.trials, len(self._plan.space.candidates) + 1)
        passed = time.monotonic() - self._start
        parts = [f"{done}/{total} probes", f"{show_duration(passed)} passed"]
        if self._trials:
            each = sum(t.report.wall_seconds for t in self._trials) / len(self._trials)
            left = each * max(0, total - done + 2 * CONFIRMATION_ROUNDS)
            if limit.search_s is not None:
                left = min(left, max(0.0, limit.search_s - passed))
            parts.append(f"about {show_duration(max(left, 0.1))} left")
        order = ranking(self._trials, self._plan.facts.job.objective)
        if order:
            best = order[0]
            parts.append(f"best so far {describe(best.candidate, accumulation_of(best))}")
        missed = misses_of(self._trials, self._plan.prepared.device)
        if missed:
            parts.append(missed)
        return " | ".join(parts)


def plan_lines(plan: Plan) -> list[str]:
    """Return what a person should know before the first probe, a line each."""
    budget, device = plan.budget, plan.prepared.device
    lines = [
        f"device   {device.label} ({device.name}); budget {show_bytes(budget.total_bytes)}, "
        f"probes may use {show_bytes(budget.usable_bytes)}",
        f"model    {plan.prepared.model.name} ({plan.prepared.model.model_type})",
        *rows_lines(plan),
    ]
    lines.append(
        f"space    {len(plan.space.candidates)} valid candidates "
        f"({plan.space.merged} merged with an equal one); effective batch "
        f"{plan.facts.effective_batch:,.4g} sequences per update"
    )
    lines += [f"skipped  {s.count} x {s.reason}" for s in plan.space.skipped[:6]]
    lines += [f"note     {n}" for n in plan.notices]
    return lines


def trials_table(trials: list[TrialRecord], width: int) -> Table:
    """Return finished probes as a table that fits the width.

    Args:
        trials: in order.
        width: columns of the terminal; narrow ones get fewer columns.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("candidate", overflow="fold", min_width=24 if width >= 80 else 12)
    table.add_column("outcome")
    table.add_column("peak", justify="right")
    if width >= 90:
        table.add_column("useful tok/s", justify="right")
    table.add_column("pass", justify="right")
    for trial in trials:
        ending = trial.report.ending
        name = describe(trial.candidate, accumulation_of(trial))
        if _ROLE[trial.role]:
            name = f"{name} ({_ROLE[trial.role]})"
        cells: list[str | Text] = [
            str(trial.number),
            Text(name),
            Text(ending.outcome.value, style=_STYLE.get(ending.outcome, "red")),
            peak_of(trial),
        ]
        if width >= 90:
            cells.append(speed_of(trial))
        table.add_row(*cells, pass_of(trial))
    return table
