"""Choices that probes showed to have no effect: not run again, and said in the findings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.candidate import Candidate, Value
from autotune.core.result import TrialRecord
from autotune.knobs.readback import used_instead, words


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
