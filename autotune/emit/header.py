"""The comment on top of an emitted file: where it comes from and every change, one a line.

Plain lines without a comment sign; each emitter adds its own. Never shows a secret.
"""

from __future__ import annotations

import os
from pathlib import Path

from autotune.core.command import weights_remark
from autotune.core.kept_words import kept_words
from autotune.core.result import Result
from autotune.core.secrets import SECRET_OPTIONS
from autotune.core.units import show_bytes
from autotune.emit.changes import TUNED, Change
from autotune.emit.settings import Settings
from autotune.emit.values import one_line

FIRST_LINE = "--- written by autotune"
LAST_LINE = "--- end of autotune's remarks"
CPU_MARK = "measured on a CPU: not a recommendation for a GPU"


def header_lines(result: Result, settings: Settings) -> list[str]:
    """Return the remarks, one short line each, first and last line marked."""
    lines = [
        f"{FIRST_LINE} {result.autotune_version}, {one_line(result.created)}",
        f"measured on {one_line(result.device.name)} ({result.device.label}),"
        f" for {settings.classes.command} with a budget of {show_bytes(result.budget.total_bytes)}",
    ]
    if result.device.kind == "cpu":
        lines.append(CPU_MARK)
    if result.chosen_because:
        lines.append(f"chosen because: {one_line(result.chosen_because, 300)}")
    lines += _numbers(result, settings)
    if settings.trial.note:
        lines.append(f"note: {one_line(settings.trial.note, 300)}")
    if result.interrupted:
        lines.append("note: the search was stopped early; this is the best it had found")
    lines += _needs(result, settings)
    if settings.options.get("resume_from_checkpoint") and _steps_differ(settings):
        lines.append(
            "note: resume_from_checkpoint counts steps of the config it was saved with, and steps "
            "are others here: start anew, or keep your own packing and max_length"
        )
    if settings.evaluates and settings.location.lacks_test:
        lines.append("note: evaluation is on, but TRL finds no test split in these rows")
    restored = [one_line(n) for n in result.overrides if _restored(n, settings)]
    if restored:
        lines.append(f"as you had them, though probes ran without: {', '.join(restored)}")
    lines += _changes(settings)
    return [*lines, LAST_LINE]


def _steps_differ(settings: Settings) -> bool:
    """Whether an epoch has other steps than under the user's config: its rows are packed anew."""
    tuned = {change.name for change in settings.changes if change.reason == TUNED}
    packed = bool(settings.options.get("packing"))
    return bool(tuned & {"packing", "packing_strategy"}) or (packed and "max_length" in tuned)


def _needs(result: Result, settings: Settings) -> list[str]:
    """Say what the file reads that is not the user's to keep: rows and models a run wrote."""
    folder = str(Path(result.out_dir).expanduser().absolute())
    blocks = settings.location.blocks or ()
    places = [settings.model, settings.location.options.get("dataset_name")]
    places += [block.get("data_files") for block in blocks]
    inside = [p for p in places if isinstance(p, str) and p.startswith(f"{folder}{os.sep}")]
    lines = [
        f"needs {one_line(place, 300)}, which lies in the run's folder: keep it" for place in inside
    ]
    if remark := weights_remark(result):
        lines.append(f"note: {one_line(remark, 300)}")
    return lines


def _restored(name: str, settings: Settings) -> bool:
    return name in settings.options and name not in {change.name for change in settings.changes}


def _numbers(result: Result, settings: Settings) -> list[str]:
    lines = []
    measurement = settings.trial.report.measurement
    peak = measurement.peaks.deciding_bytes if measurement else None
    if peak is not None:
        lines.append(f"peak memory {show_bytes(peak)}")
    estimate = result.estimate_of(settings.trial.candidate.key)
    if estimate is not None:
        lines.append(
            f"{estimate.useful_tokens_per_s:,.0f} useful tokens/s,"
            f" {kept_words(result, settings.trial)}"
        )
    speed = result.speedup
    if speed is not None and result.best != result.reference:
        lines.append(
            f"{speed.value:.2f} times as fast as the reference"
            f" (95 % interval {speed.low:.2f} to {speed.high:.2f})"
        )
    return lines


def _changes(settings: Settings) -> list[str]:
    whose = "your config" if settings.own else "TRL's defaults"
    if not settings.changes:
        return [f"nothing changed against {whose}"]
    lines = [f"changes against {whose} (class of the winner: {one_line(settings.trial.changes)}):"]
    return lines + [f"  {_change(change)}" for change in settings.changes]


def _change(change: Change) -> str:
    if any(change.name.endswith(secret) for secret in SECRET_OPTIONS):
        return f"{change.name}: as given"
    old = one_line(change.old) if change.written else "(not set)"
    new = one_line(change.new) if change.kept else "(removed)"
    name = f"{change.was}, now {change.name}" if change.was else change.name
    return f"{one_line(name)}: {old} -> {new}   [{change.reason}]"
