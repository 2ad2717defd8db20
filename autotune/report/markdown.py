"""A result as Markdown that fits a pull-request comment or a CI step summary.

Names come from outside and are escaped: nothing in them becomes a tag, a link, a mention or a
table cell of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from autotune.core.result import Result
from autotune.core.units import show_bytes, show_duration
from autotune.report import summary
from autotune.report.clocks import clocks
from autotune.report.privacy import public
from autotune.report.side_by_side import nearest_miss
from autotune.report.trial_rows import trial_rows

#: GitHub refuses comments above 65,536 characters; step summaries may be longer.
MAX_CHARACTERS = 60_000
_MAX_TRIALS = 40
#: Longest cell of the tables of probes and of what was not tried.
_MAX_CELL = 300
#: Signs that start something wherever they stand; an underscore only at the edge of a word.
_MARKUP = re.compile(r"[\\`*\[\]|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[-+>]")


def render(result: Result) -> str:
    """Write the answer, what changed, and the trials folded away."""
    shown = public(result)
    parts = [f"### autotune: {text(summary.headline(shown))}", _where(shown)]
    if shown.device.kind == "cpu":
        parts.append(f"> **{summary.CPU_REMARK}**")
    parts += [_bullets(summary.sentences(shown)), _facts(shown), _settings(shown)]
    parts += [_nearest(shown), _bullets(summary.notices(shown)), _trials(shown), _skipped(shown)]
    return fitted([part for part in parts if part])


def fitted(parts: Sequence[str]) -> str:
    """Join parts to a document that a comment can hold; a part is left out whole, the last first.

    Args:
        parts: Markdown blocks, most important first; the first is cut when it alone is too long.
    """
    kept = list(parts)
    while True:
        left_out = len(parts) - len(kept)
        more = [f"({left_out} more parts did not fit here.)"] if left_out else []
        document = "\n\n".join([*kept, *more]) + "\n"
        if len(document) <= MAX_CHARACTERS:
            return document
        if len(kept) == 1:
            return document[: MAX_CHARACTERS - 1].rsplit("\n", 1)[0] + "\n"
        kept.pop()


def text(value: object) -> str:
    """Write a value so that Markdown and HTML take it as text, on one line."""
    line = " ".join(str(value).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A zero-width character keeps @names and bare addresses from becoming mentions and links.
    line = line.replace("@", "@\u200b").replace("://", ":\u200b//")
    return _MARKUP.sub(r"\\\g<0>", line)


def code(value: object) -> str:
    """Write a value as a code span, in which nothing is markup; one line."""
    line = " ".join(str(value).split())
    # A backtick would end the span, a bar would end the cell even inside one.
    return text(line) if "`" in line or not line else f"`{line.replace('|', chr(92) + '|')}`"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> str:
    """Write a table.

    Args:
        head: titles.
        rows: cells, already escaped.
        right: how many of the last columns hold numbers.
    """
    marks = ["---"] * (len(head) - right) + ["---:"] * right
    lines = [head, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _where(result: Result) -> str:
    budget = show_bytes(result.budget.total_bytes)
    return (
        f"{text(result.job.model)} on {text(result.job.dataset.path)}, "
        f"trainer {result.job.trainer.value}, {text(result.device.name)} "
        f"({result.device.label}), budget {budget}{_clocks(result)}."
    )


def _clocks(result: Result) -> str:
    seen = clocks(result.best_trial or result.baseline_trial)
    return f"; clocks while timed: {text(seen)}" if seen else ""


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {text(line)}" for line in lines)


def _facts(result: Result) -> str:
    rows = [(f.label, f.best, f.reference or summary.ABSENT) for f in summary.facts(result)]
    return table(("", "chosen", "reference"), rows, right=2) if rows else ""


def _settings(result: Result) -> str:
    changed = [s for s in summary.settings(result) if s.changed]
    rows = [(code(s.name), code(s.before), code(s.after)) for s in changed]
    return table(("option", "reference", "chosen"), rows) if rows else ""


def _nearest(result: Result) -> str:
    trial = nearest_miss(result)
    if result.best is not None or trial is None or trial.report.needed_bytes is None:
        return ""
    needed = show_bytes(trial.report.needed_bytes)
    return (
        f"Nearest to fitting: {text(summary.knob_text(trial, result))}, which needs {needed} "
        f"({text(trial.report.ending.reason)})."
    )


def _trials(result: Result) -> str:
    counts = ", ".join(f"{n} {name}" for name, n in summary.outcome_counts(result).items())
    rows = []
    pairs = list(zip(result.trials, trial_rows(result), strict=True))[:_MAX_TRIALS]
    for trial, row in pairs:
        peak, seconds, rate = row["peak_bytes"], row["pass_seconds"], row["useful_tokens_per_s"]
        rows.append(
            (
                str(trial.number),
                _outcome(row),
                text(_short(summary.knob_text(trial, result))),
                text(_short(trial.report.ending.reason)),
                show_bytes(peak) if peak is not None else "",
                show_duration(seconds) if seconds is not None else "",
                f"{rate:,.0f}" if rate is not None else "",
            )
        )
    head = ("#", "outcome", "differs from your config", "reason", "peak", "pass", "tokens/s")
    more = len(result.trials) - len(rows)
    note = f"\n\nand {more} more" if more > 0 else ""
    return _folded(f"{len(result.trials)} probes: {counts}", table(head, rows, right=3) + note)


def _outcome(row: dict[str, Any]) -> str:
    if row["role"] != "search":
        return f"{row['outcome']} ({row['role']})"
    return f"**{row['outcome']} (chosen)**" if row["is_best"] else str(row["outcome"])


def _skipped(result: Result) -> str:
    rows = [
        (text(_short(s.what)), text(_short(s.reason)), str(s.count))
        for s in result.skipped[:_MAX_TRIALS]
    ]
    if not rows:
        return ""
    total = sum(s.count for s in result.skipped)
    more = len(result.skipped) - len(rows)
    note = f"\n\nand {more} more reasons" if more > 0 else ""
    body = table(("not tried", "why", "candidates"), rows, right=1)
    return _folded(f"{total} candidates were not tried", body + note)


def _short(words: str) -> str:
    return words if len(words) <= _MAX_CELL else f"{words[: _MAX_CELL - 1]}…"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{text(title)}</summary>\n\n{body}\n\n</details>"
