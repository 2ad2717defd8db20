"""Choices that probes showed to have no effect: not run again, and said in the findings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.core.candidate import Candidate, Value
from autotune.core.measurement import Measurement
from autotune.core.result import TrialRecord
from autotune.knobs.facts import Facts
from autotune.knobs.readback import used_instead, words
from autotune.knobs.translate import settings


def same_in_effect(candidates: Sequence[Candidate], trials: Sequence[TrialRecord]) -> set[str]:
    """Return keys of candidates whose configuration in effect is that of another one.

    Args:
        candidates: of the space.
        trials: every record there is; each says what was used instead of what it asked for.
    """
    seen = _seen(trials)
    keys = {c.key for c in (*candidates, *(t.candidate for t in trials))}
    found = set()
    for candidate in candidates:
        used = {n: seen[n, v] for n, v in candidate.knobs.items() if (n, v) in seen}
        if used and candidate.with_knobs(**used).key in keys:
            found.add(candidate.key)
    return found


def in_effect(
    candidate: Candidate, options: dict[str, Any], measured: Measurement | None, facts: Facts
) -> tuple[dict[str, Any], str]:
    """Return the options to emit for a candidate, and what of it had no effect, in words.

    Args:
        candidate: what was asked for.
        options: its TRL options, and others beside them.
        measured: what was measured of it; None when nothing was.
        facts: job, rows and machine.
    """
    used = used_instead(candidate, measured.effective) if measured is not None else {}
    if not used:
        return options, ""
    asked = settings(candidate, facts).options
    honest = settings(candidate.with_knobs(**used), facts).options
    beside = {name: value for name, value in options.items() if name not in asked}
    return {**honest, **beside}, words(candidate, used)


def had_no_effect(trials: Sequence[TrialRecord]) -> list[str]:
    """Return a sentence on every choice that was asked for and not used, each once."""
    found: dict[str, str] = {}
    for trial in trials:
        measured = trial.report.measurement
        used = used_instead(trial.candidate, measured.effective) if measured is not None else {}
        for name, value in used.items():
            said = words(trial.candidate, {name: value})
            sentence = f"{said} (read back from the trainer of probe {trial.number})."
            found.setdefault(said, sentence)
    return list(found.values())


def _seen(trials: Sequence[TrialRecord]) -> dict[tuple[str, Value], Value]:
    """Return what was used, by the knob and the choice that was asked for."""
    found: dict[tuple[str, Value], Value] = {}
    for trial in trials:
        measured = trial.report.measurement
        used = used_instead(trial.candidate, measured.effective) if measured is not None else {}
        found |= {(name, trial.candidate.get(name)): value for name, value in used.items()}
    return found
