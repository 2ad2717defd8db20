"""The result of a run on stdout: the answer on top, then the trials; the last line trains."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from autotune.cli.live import trials_table
from autotune.cli.words import accumulation_of, describe
from autotune.core.command import train_command, weights_remark
from autotune.core.kept_words import kept_words, lost_words
from autotune.core.result import Result
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.report.anatomy import weights_words
from autotune.report.beside import beside_words
from autotune.report.in_effect import in_effect_words
from autotune.study.assemble import most_where, peaks_line


def print_result(result: Result, console: Console) -> None:
    """Print a result as words and tables.

    Args:
        result: a result with a best trial.
        console: where to.
    """
    for notice in result.notices:
        console.print(f"note: {notice}", markup=False)
    console.print(trials_table(list(result.trials), console.width))
    console.print()
    best = result.best_trial
    numbers, budget = result.estimate_of(result.best), result.budget
    assert best is not None and numbers is not None
    measured = best.report.measurement
    assert measured is not None
    once = numbers.precompute_seconds
    lines = [
        f"best: {describe(best.candidate, accumulation_of(best))}",
        f"      chosen because {result.chosen_because}",
        f"      peak {peaks_line(measured.peaks)} of {show_bytes(budget.usable_bytes)} usable "
        f"({show_bytes(budget.total_bytes)} less {show_ratio(budget.headroom_ratio)} headroom)"
        f"{most_where(measured)}",
        f"      one pass takes about {show_duration(numbers.pass_seconds)}; "
        f"{numbers.useful_tokens_per_s:,.0f} useful tokens/s "
        f"({numbers.padded_tokens_per_s:,.0f} with padding, "
        f"{numbers.label_tokens_per_s:,.0f} trained on)",
        f"      {kept_words(result, best)}",
        f"      {lost_words(result, best)}; "
        f"{numbers.sequences_per_update:.2f} sequences per update",
    ]
    if held := weights_words(best):
        lines.append(f"      {held[0].lower()}{held[1:]}")
    if once:
        lines.append(
            f"      and once, before training, about {show_duration(once)} for the reference's "
            "log-probabilities of every row (counted in the comparison)"
        )
    if measured.worst_tokens:
        named = ", ".join(str(row + 1) for row in measured.worst_rows[:4])
        lines.append(
            f"      memory measured on the worst batch: {max(measured.worst_tokens)} tokens in its "
            f"longest row{f' (rows {named}, ...)' if named else ''}"
        )
    lines += [f"      {sentence.rstrip('.')}" for sentence in beside_words(best)]
    if in_effect := in_effect_words(best):
        lines.append(f"      {in_effect[0].lower()}{in_effect[1:]}")
    lines += [f"      {shown}" for shown in (result.equivalence, result.verification) if shown]
    if result.pays_back_seconds is not None:
        lines.append(
            f"      the search took {show_duration(result.search_seconds)}; it has paid for itself "
            f"after {show_duration(result.pays_back_seconds)} of training with the reference"
        )
    for line in lines:
        console.print(line, markup=False)
    console.print(f"written to {result.out_dir}", markup=False)
    if remark := weights_remark(result):
        console.print(f"{remark}.", markup=False)
    command = train_command(result, str(Path(result.out_dir) / "best.yaml"))
    console.print(command, markup=False, soft_wrap=True)
