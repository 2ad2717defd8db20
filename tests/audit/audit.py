"""Holds every claim of the rules against what TRL does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.core.candidate import Candidate
from autotune.knobs.rules import judge
from autotune.knobs.translate import canonical
from tests.audit.attempt import Bench
from tests.audit.verdict import Tried, accepted, merged, rejected

#: Rules that are autotune's own and claim nothing about TRL.
POLICIES = frozenset(
    {
        "length_within_positions",
        "versions_want_it",
        "float16_is_scaled",
        "no_longer_than_the_reference",
        "enough_is_kept",
        "effective_batch_held",
        "change_is_allowed",
    }
)

MULTIPLE = "pad_to_multiple_of"


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
    if candidate.get(MULTIPLE) is not None and MULTIPLE not in stands.knobs:
        # The one knob that is dropped although it does something: TRL's collator appends pads to
        # the flattened row, and attention takes each for a document of one token.
        found.append(Tried(candidate, "policy", "flattened_rows_are_not_padded", True, ""))
        candidate = candidate.with_knobs(**{MULTIPLE: None})
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
