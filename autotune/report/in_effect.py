"""The values TRL really used for a candidate, in words: read back from its constructed trainer."""

from __future__ import annotations

from autotune.core.result import TrialRecord
from autotune.knobs.no_effect import shown


def in_effect_words(trial: TrialRecord) -> str:
    """Return what was in effect while a candidate was measured; empty when nothing was read back.

    Args:
        trial: a measured trial.
    """
    measured = trial.report.measurement
    if measured is None or not measured.effective:
        return ""
    values = ", ".join(f"{name} {shown(value)}" for name, value in measured.effective.items())
    widths = [step.width for step in (*measured.memory_steps, *measured.timed_steps)]
    batches = f"; batches {min(widths)} to {max(widths)} tokens wide" if widths else ""
    return f"In effect, read back from the trainer: {values}{batches}"
