"""How `autotune probe` speaks: one line a probe while it measures, the numbers at the end."""

from __future__ import annotations

from rich.console import Console

from autotune.cli.row_progress import RowsView
from autotune.cli.words import accumulation_of, describe, peak_of, speed_of
from autotune.core.candidate import Candidate
from autotune.core.kept_words import kept_words, lost_words
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes, show_duration
from autotune.report.beside import beside_words
from autotune.study.assemble import most_where, peaks_line
from autotune.use.planned import Plan


class MeasuringView(RowsView):
    """Show on stderr what is being measured."""

    def __init__(self, console: Console) -> None:
        """Take the console of progress."""
        super().__init__(console)
        self._own = ""
        self._done = 0

    def planned(self, plan: Plan) -> None:
        """Say what was filled in."""
        for notice in plan.notices:
            self._console.print(f"note     {notice}", markup=False)

    def started(self, candidate: Candidate, role: str) -> None:
        """Note which of the two is measured."""
        if role == "baseline":
            self._own = candidate.key
        self.begin(f"measuring {self._name(candidate)}")

    def finished(self, record: TrialRecord) -> None:
        """Say how a probe ended."""
        self._done += 1
        ending = record.report.ending
        words = [
            f"[{self._done}]",
            self._name(record.candidate),
            describe(record.candidate, accumulation_of(record)),
            ending.outcome.value,
            f"peak {peak_of(record)}",
            f"{speed_of(record)} tok/s" if record.estimate else "",
            ending.reason,
        ]
        self._console.print("  ".join(word for word in words if word), markup=False)

    def _name(self, candidate: Candidate) -> str:
        return "the config" if candidate.key == self._own else "its reference"


def measured_lines(result: Result) -> list[str]:
    """Return the numbers of the one config, a line each.

    Args:
        result: a result with a best trial.
    """
    best = result.best_trial
    numbers = result.estimate_of(result.best)
    assert best is not None and numbers is not None
    measured = best.report.measurement
    assert measured is not None
    times = len(result.timed_of(result.best))
    often = "measured once" if times == 1 else f"measured {times} times"
    middle = "" if times == 1 else f" (median of {times})"
    lines = [
        f"config      {describe(best.candidate, accumulation_of(best))}, {often}",
        f"peak        {peaks_line(measured.peaks)} of {show_bytes(result.budget.usable_bytes)} "
        f"usable{'' if times == 1 else ' (first of them)'}{most_where(measured)}",
        f"speed       {numbers.useful_tokens_per_s:,.0f} useful tokens/s, one pass takes about "
        f"{show_duration(numbers.pass_seconds)}{middle}",
        f"kept        {kept_words(result, best).removeprefix('keeps ')}",
        f"documents   {lost_words(result, best)}",
    ]
    lines += [f"            {sentence.rstrip('.')}" for sentence in beside_words(best)]
    speed, other = result.speedup, result.reference_trial
    if speed is not None and other is not None:
        lines.append(
            f"reference   {speed.value:.2f} times as fast as "
            f"{describe(other.candidate, accumulation_of(other))}, 95 % interval {speed.low:.2f} "
            f"to {speed.high:.2f}, measured in turns {speed.pairs} times"
        )
    return lines
