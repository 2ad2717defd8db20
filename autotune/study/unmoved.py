"""Finds candidates that leave adapters untrained which others train: quiet, and never to be chosen.

An adapter that no candidate trains is a layer the model does not use, and says nothing of any of
them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.measurement import ADAPTER
from autotune.core.result import TrialRecord

#: Knobs that decide which adapters there are.
_ADAPTERS = ("peft", "lora_target_modules", "quantization")


def unmoved(trials: Sequence[TrialRecord]) -> dict[str, str]:
    """Return, by key, the sentence on every candidate that leaves such adapters as they are.

    Args:
        trials: every record there is.
    """
    found: dict[str, str] = {}
    for trial in trials:
        idle = _idle(trial)
        if not idle:
            continue
        others = [other for other in trials if _alike(trial, other)]
        lost = sorted(name for name in idle if any(name not in _idle(o) for o in others))
        if lost:
            layer = lost[0].removesuffix(ADAPTER)
            found[trial.candidate.key] = (
                f"Probe {trial.number} trains no adapter of {len(lost)} layers, such as {layer}, "
                f"which probe {others[0].number} trains: it is not eligible."
            )
    return found


def _idle(trial: TrialRecord) -> frozenset[str]:
    measured = trial.report.measurement
    return frozenset(measured.idle_adapters) if measured is not None else frozenset()


def _alike(trial: TrialRecord, other: TrialRecord) -> bool:
    """Whether another candidate was measured that has the same adapters."""
    mine, theirs = trial.report.measurement, other.report.measurement
    if mine is None or theirs is None or mine.trained_modules != theirs.trained_modules:
        return False
    different = trial.candidate.key != other.candidate.key
    return different and all(trial.candidate.get(n) == other.candidate.get(n) for n in _ADAPTERS)
