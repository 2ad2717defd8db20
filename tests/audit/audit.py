"""Holds every claim of the rules against what TRL does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.core.candidate import Candidate
from autotune.knobs.rules import POLICIES, judge
from autotune.knobs.translate import canonical
from tests.audit.attempt import Bench
from tests.audit.verdict import Tried, accepted, merged, rejected


def audit(
    bench: Bench, combinations: Sequence[Candidate], told: Callable[[Tried], None]
) -> list[Tried]:
    """Try combinations and say of each whether TRL bears the rules out.

    Args:
        bench: tries them.
        combinations: in any form; canonical ones are made here.
        told: called with each as it is done.
    """
    done: list[Tried] = []
    for candidate in combinations:
        for tried in _tried(bench, candidate):
            done.append(tried)
            told(tried)
    return done


def _tried(bench: Bench, candidate: Candidate) -> list[Tried]:
    stands = canonical(candidate, bench.facts)
    verdict = judge(stands, bench.facts)
    if not verdict.valid and verdict.rule in POLICIES:
        return [Tried(candidate, "policy", verdict.rule, True, verdict.reason)]
    if not verdict.valid:
        without = _nearest_accepted(bench, stands)
        return [
            rejected(
                candidate,
                verdict.rule,
                bench.as_written(candidate),
                None if without is None else bench.translated(without),
            )
        ]
    report = bench.translated(stands)
    found = [accepted(stands, report)]
    if stands.key != candidate.key:
        found.append(merged(candidate, bench.as_written(candidate), report))
    return found


def _nearest_accepted(bench: Bench, candidate: Candidate) -> Candidate | None:
    """Return an accepted candidate that differs in one knob, which takes the user's choice."""
    from autotune.knobs.catalog import user_candidate

    own: Mapping[str, object] = user_candidate(bench.facts).knobs
    for name in candidate.knobs:
        if name in own and candidate.get(name) != own[name]:
            other = canonical(candidate.with_knobs(**{name: own[name]}), bench.facts)  # type: ignore[arg-type]
            if judge(other, bench.facts).valid:
                return other
    return None
