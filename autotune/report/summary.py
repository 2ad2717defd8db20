"""The answer of a result in a few values and sentences, the same in every report.

Computes nothing that was not measured; knows no format.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from autotune.core.kept_words import kept_words, lost_words, reference_words
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_bytes, show_duration, show_ratio
from autotune.knobs.versions import RENAMED, canonical_options, spelled
from autotune.report.anatomy import precompute_words, weights_words
from autotune.report.beside import beside_words
from autotune.report.in_effect import in_effect_words
from autotune.report.side_by_side import what_dominates

#: Said of every result that was not measured on the kind of device people train on.
CPU_REMARK = "Measured on a CPU: not a recommendation for a GPU."
ABSENT = "–"
#: An option that is left to TRL.
NOT_SET = "not set"
#: The length rows are cut to before TRL sees them, beside the options in the list of settings.
ROWS_CUT = "rows cut beforehand to"


@dataclass(frozen=True)
class Fact:
    """One number of the answer, for the winner and for the reference.

    Args:
        label: what it is.
        best: for the winner, in words with its unit.
        reference: for the reference; None when there is none or it is the winner.
        better: whether the winner's is the better one; None when they read alike.
        more: whether the winner's is the larger one.
    """

    label: str
    best: str
    reference: str | None
    better: bool | None = None
    more: bool = False


@dataclass(frozen=True)
class Setting:
    """One option in the reference's and in the winner's configuration.

    Args:
        name: the option, or ``env.NAME``.
        before: the reference's value as text.
        after: the winner's value as text.
    """

    name: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Whether the winner differs."""
        return self.before != self.after


def headline(result: Result) -> str:
    """Say the answer in one sentence."""
    best = result.best_trial
    if not result.searched:
        peak = _peak(best) if best is not None else None
        if peak is None:
            return f"The config does not run within {show_bytes(result.budget.total_bytes)}."
        return f"The config fits: its peak is {show_bytes(peak)}."
    if best is None:
        return f"Nothing fits {show_bytes(result.budget.total_bytes)}."
    whose = reference_name(result)
    if result.best == result.reference:
        return f"Nothing found beats {whose}: it is kept."
    if result.job.objective == "memory":
        peak = _peak(best)
        return f"The smallest peak: {show_bytes(peak) if peak is not None else ABSENT}."
    if result.speedup is None:
        return "The fastest configuration found that fits."
    return f"{result.speedup.value:.2f} times as fast as {whose}."


def reference_name(result: Result) -> str:
    """Return whose configuration ratios are made against."""
    if not result.searched:
        return "the same config at batch 1, unpacked, with full checkpointing"
    trial = result.reference_trial
    mine = trial is not None and trial.role == "baseline"
    return "your own config" if mine else "the fitting config nearest yours"


def sentences(result: Result) -> list[str]:
    """Return why this one, how sure, and what the search cost, one sentence each."""
    found = []
    because = result.chosen_because.strip().rstrip(".")
    if because:
        found.append(f"Chosen because {because}." if result.best else f"{because.capitalize()}.")
    if result.best is None and (dominated := what_dominates(result)):
        found.append(dominated)
    speed = result.speedup
    if speed is not None and "interval" not in because and result.best != result.reference:
        found.append(
            f"Measured in turns with {reference_name(result)} {speed.pairs} times: "
            f"{speed.value:.2f} times as fast, 95 % interval {speed.low:.2f} to {speed.high:.2f}."
        )
    for shown in (result.equivalence, result.verification):
        if shown:
            found.append(f"{shown[0].upper()}{shown[1:].rstrip('.')}.")
    best = result.best_trial
    if best is not None:
        said = (
            kept_words(result, best),
            lost_words(result, best),
            weights_words(best),
            precompute_words(best),
            in_effect_words(best),
        )
        found += [f"{words[0].upper()}{words[1:]}." for words in said if words]
        found += beside_words(best)
        found += [f"Note: {best.note.rstrip('.')}."] if best.note else []
    if called := spelling(result):
        found.append(called)
    if processes := several_processes(result):
        found.append(processes)
    if not result.searched:
        cost = f"Measuring took {show_duration(result.search_seconds)}"
        return [*found, f"{cost} for {len(result.trials)} probes."]
    cost = f"The search took {show_duration(result.search_seconds)}"
    cost += f" for {len(result.trials)} probes"
    if result.pays_back_seconds is not None:
        cost += f" and has paid for itself after {show_duration(result.pays_back_seconds)}"
        cost += " of training"
    found.append(f"{cost}.")
    if result.interrupted:
        found.append("The search was stopped early; more may be found with --resume.")
    return found


def several_processes(result: Result) -> str:
    """Say what the numbers mean where the config asks for several processes; else empty."""
    count = result.job.options.get("num_processes")
    if not isinstance(count, int) or count < 2:
        return ""
    return (
        f"Numbers are those of one process on one device. {count} processes need as much each, "
        f"without the buffers they talk through, and see {count} times the sequences in an update."
    )


def spelling(result: Result) -> str:
    """Say how a knob's option is called in the emitted files where its name is another."""
    written = {setting.name for setting in settings(result)}
    names = [f"{new} is the knob {old}" for new, old in RENAMED.items() if new in written]
    return f"In the emitted files and the list of options {names[0]}." if names else ""


def notices(result: Result) -> list[str]:
    """Return the remarks for the reader, without the one that every report has on top."""
    return [notice for notice in result.notices if notice != CPU_REMARK]


def facts(result: Result) -> list[Fact]:
    """Return speed, time, tokens kept and peak of winner and reference."""
    best, b = result.best_trial, result.estimate_of(result.best)
    if best is None or b is None:
        return []
    other = None if result.best == result.reference else result.reference_trial
    o = result.estimate_of(other.candidate.key) if other else None
    rows = [
        _fact(
            "Useful tokens per second", b.useful_tokens_per_s, o and o.useful_tokens_per_s, _rate
        ),
        _fact("Time for one pass", b.pass_seconds, o and o.pass_seconds, show_duration, less=True),
        _fact(
            f"Label tokens kept, {reference_words(result.job, result.profile)}",
            b.retention_ratio,
            o and o.retention_ratio,
            show_ratio,
        ),
        _fact("Padding computed", b.padding_ratio, o and o.padding_ratio, show_ratio, less=True),
    ]
    if b.precompute_seconds or (o and o.precompute_seconds):
        before = o and o.precompute_seconds
        rows.append(
            _fact("Once before training", b.precompute_seconds, before, show_duration, less=True)
        )
    peak, peak_before = _peak(best), _peak(other) if other else None
    if peak is not None:
        row = _fact("Peak memory", peak, peak_before, lambda n: show_bytes(int(n)), less=True)
        measured = best.report.measurement
        rows.append(replace(row, best=row.best + (measured.peak_where if measured else "")))
    return rows


def settings(result: Result) -> list[Setting]:
    """Return the winner's options and variables beside the reference's, changed ones first.

    Spelled as in the emitted files, so that one can be found in the other.
    """
    best, other = result.best_trial, result.reference_trial or result.baseline_trial
    if best is None:
        return []
    asked, versions = result.job.options, result.environment.versions
    options = canonical_options({**asked, **(other.options if other else {})})
    before = spelled(options, versions)
    found = [
        Setting(name, value_text(before.get(name, NOT_SET)), value_text(value))
        for name, value in spelled(best.options, versions).items()
    ]
    if best.pretruncate_tokens is not None:
        cut = other.pretruncate_tokens if other else None
        found.append(
            Setting(ROWS_CUT, value_text(cut or NOT_SET), value_text(best.pretruncate_tokens))
        )
    env_before = {**result.job.env, **(other.env if other else {})}
    found += [
        Setting(f"env.{name}", value_text(env_before.get(name, NOT_SET)), value_text(value))
        for name, value in best.env.items()
    ]
    return sorted(found, key=lambda s: not s.changed)


def outcome_counts(result: Result) -> dict[str, int]:
    """Count the trials by outcome, most frequent first."""
    names = [trial.report.ending.outcome.value for trial in result.trials]
    return dict(sorted(((n, names.count(n)) for n in set(names)), key=lambda p: (-p[1], p[0])))


def knob_text(trial: TrialRecord, result: Result) -> str:
    """Write what distinguishes a trial from the baseline, or all its knobs when there is none."""
    base = result.baseline_trial
    knobs = trial.candidate.knobs
    if base is not None and trial.candidate.key == base.candidate.key:
        return "your own config"
    if base is not None:
        knobs = {n: mine for n, (mine, _) in trial.candidate.differences(base.candidate).items()}
    return ", ".join(f"{name} {value_text(value)}" for name, value in knobs.items())


def _fact(label: str, best: float, other: Any, show: Any, *, less: bool = False) -> Fact:
    if other is None:
        return Fact(label, show(best), None)
    better = None if show(best) == show(other) else (best < other) == less
    return Fact(label, show(best), show(other), better, best > other)


def _peak(trial: TrialRecord) -> int | None:
    measurement = trial.report.measurement
    return measurement.peaks.deciding_bytes if measurement else None


def _rate(value: float) -> str:
    return f"{value:,.0f}"


def value_text(value: Any) -> str:
    """Write an option's value as YAML would read it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {value_text(v)}" for k, v in value.items()) or "{}"
    return "null" if value is None else str(value)
