"""What only running showed to be invalid: no trial, said once, and not run again in other clothes.

Rules keep out what is known to be invalid (knobs/rules.py). What TRL, the model or the leak check
is against is found out by a probe. Such a candidate is nothing a sampler learns from and takes no
part in ``--trials``; it is in a result's list of what was skipped and not among its trials. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.core.candidate import Candidate, Value
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.result import Skipped, TrialRecord

#: The choices that decide whether documents of one row see each other (DESIGN.md 5.7).
_LEAK_KNOBS = ("packing", "padding_free", "attn_implementation")
#: Choices by which a knob does nothing.
_AT_REST = (None, False, "none", "default")


@dataclass(frozen=True)
class Refusal:
    """Candidates that turned out invalid for one reason.

    Args:
        reason: one sentence, in the words of whoever refused them.
        common: the choices all of them have, of which some are the cause.
        keys: their keys.
        most_tokens: the longest ``max_length`` that was too short; None where length is no cause.
        spreads: whether every candidate with these choices is taken to be invalid. It is not while
            nothing ran (the cause may lie outside the candidates), nor when something with all of
            these choices did.
    """

    reason: str
    common: Mapping[str, Value]
    keys: frozenset[str]
    most_tokens: int | None = None
    spreads: bool = False

    def concerns(self, candidate: Candidate) -> bool:
        """Whether a candidate has every choice the refused ones have in common."""
        if not _has(candidate, self.common):
            return False
        length = candidate.get("max_length")
        shorter = isinstance(length, int) and length <= (self.most_tokens or 0)
        return self.most_tokens is None or shorter


def is_refusal(trial: TrialRecord) -> bool:
    """Whether a searched candidate turned out to be invalid, so that it is no trial."""
    return trial.role == "search" and trial.report.ending.outcome is Outcome.INVALID


def _ran(trial: TrialRecord) -> bool:
    """Whether a candidate was built and trained, in however much memory."""
    ending = trial.report.ending
    later = ending.outcome.is_memory and ending.phase is not Phase.LOAD
    return ending.outcome is Outcome.FITS or later


def signature(ending: Ending) -> tuple[Outcome, str]:
    """Return what two endings of one cause share: addresses, sizes and counts differ."""
    return ending.outcome, re.sub(r"0x[0-9a-fA-F]+|\d+", "#", ending.reason)


def refusals(trials: Sequence[TrialRecord]) -> list[Refusal]:
    """Return what was found invalid by running it, one entry per cause.

    Two that were refused for one reason may have one cause, which is then among the choices they
    share; of a leak, and of an ending that names its causes, it is known which choices decide.

    Args:
        trials: every record there is; the user's own config counts as evidence.
    """
    groups: dict[tuple[object, ...], list[TrialRecord]] = {}
    for trial in trials:
        ending = trial.report.ending
        if trial.role in ("baseline", "search") and ending.outcome is Outcome.INVALID:
            known = _known_cause(trial)
            groups.setdefault((*signature(ending), *known.items()), []).append(trial)
    ran = [t.candidate for t in trials if _ran(t)]
    found = []
    for group in groups.values():
        known, too_short = _known_cause(group[0]), _too_short(group)
        named = bool(known) or too_short is not None
        one = Refusal(
            reason=group[0].report.ending.reason,
            common=known if named else _common([trial.candidate for trial in group]),
            keys=frozenset(t.candidate.key for t in group),
            most_tokens=too_short,
        )
        spreads = (named or bool(ran)) and not any(map(one.concerns, ran))
        found.append(replace(one, spreads=spreads))
    return found


def set_aside(candidates: Iterable[Candidate], trials: Sequence[TrialRecord]) -> dict[str, Refusal]:
    """Return, by key, the candidates that need not be run because others like them were refused.

    Args:
        candidates: of the space.
        trials: every record there is.
    """
    known = [one for one in refusals(trials) if one.spreads]
    if not known:
        return {}
    probed = {t.candidate.key for t in trials}
    found = {}
    for candidate in candidates:
        cause = next((one for one in known if one.concerns(candidate)), None)
        if cause is not None and candidate.key not in probed:
            found[candidate.key] = cause
    return found


def skipped(candidates: Iterable[Candidate], trials: Sequence[TrialRecord]) -> list[Skipped]:
    """Return a line per reason: what was refused, and how many candidates that concerns.

    Args:
        candidates: of the space.
        trials: every record there is.
    """
    ran = [t.candidate for t in trials if _ran(t)]
    refused = {t.candidate.key for t in trials if is_refusal(t)}
    aside = set_aside(candidates, trials)
    lines: dict[str, tuple[set[str], set[str]]] = {}
    for one in refusals(trials):
        keys = (one.keys & refused) | {key for key, cause in aside.items() if cause == one}
        if keys:
            concerned, suspects = lines.setdefault(one.reason, (set(), set()))
            concerned |= keys
            suspects |= _suspects(one, ran)
    return [
        Skipped(
            what=f"refused when run{': ' if suspects else ''}{', '.join(sorted(suspects))}",
            reason=reason,
            count=len(concerned),
        )
        for reason, (concerned, suspects) in lines.items()
    ]


def _known_cause(trial: TrialRecord) -> dict[str, Value]:
    """Return the choices that are known to be the cause together; empty when none are.

    A knob the candidate does not have is none of them, nor are knobs that are all at rest.
    """
    measured = trial.report.measurement
    if measured is not None and measured.documents_mix:
        return {name: trial.candidate.get(name) for name in _LEAK_KNOBS}
    knobs, causes = trial.candidate.knobs, trial.report.ending.causes
    if "max_length" in causes:  # how wide a batch is for a length depends on packing
        return {n: v for n, v in knobs.items() if n == "packing"}
    found = {n: knobs[n] for n in causes if n in knobs}
    return found if any(value not in _AT_REST for value in found.values()) else {}


def _too_short(group: Sequence[TrialRecord]) -> int | None:
    """Return the longest length of a group that was refused for being too short."""
    lengths = [t.candidate.get("max_length") for t in group]
    if "max_length" not in group[0].report.ending.causes:
        return None
    return max((n for n in lengths if isinstance(n, int)), default=None)


def _common(group: Sequence[Candidate]) -> dict[str, Value]:
    """Return the choices all candidates of a group have."""
    first, *others = group
    return {
        name: first.get(name)
        for name in sorted({name for candidate in group for name in candidate.knobs})
        if all(other.get(name) == first.get(name) for other in others)
    }


def _has(candidate: Candidate, choices: Mapping[str, Value]) -> bool:
    return all(candidate.get(name) == value for name, value in choices.items())


def _suspects(one: Refusal, ran: Sequence[Candidate]) -> set[str]:
    """Name the common choices of nothing that ran, which the cause is among."""
    found = {n: v for n, v in one.common.items() if not any(c.get(n) == v for c in ran)}
    named = {f"{n} {'null' if v is None else str(v).lower()}" for n, v in found.items()}
    return named if one.most_tokens is None else {f"max_length up to {one.most_tokens}"}
