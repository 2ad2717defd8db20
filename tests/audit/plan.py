"""Decides what is tried of a job: what the rules accept, reject and merge; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from autotune.core.candidate import Candidate, Value
from autotune.knobs.catalog import user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.rules import RULES
from autotune.knobs.translate import canonical
from tests.audit.cover import REPAIRS, Space, covering, sort_out
from tests.audit.single import Fault, Merge, one_more


@dataclass(frozen=True)
class Pairs:
    """How many pairs of choices of two knobs there are, by what the rules make of them.

    Args:
        held: those that some valid candidate keeps.
        covered: those that an accepted combination of the sample keeps.
        merged: those that are always searched as others.
        forbidden: those no valid candidate has.
    """

    held: int
    covered: int
    merged: int
    forbidden: int


@dataclass(frozen=True)
class Trials:
    """What is tried of one job.

    Args:
        accepted: canonical candidates that keep every pair a valid candidate can have.
        rejected: one combination for each smallest faulty assignment.
        merged: one combination for each smallest assignment that is merged away.
        pairs: what the accepted ones cover.
        unexplained: choices and pairs no valid candidate has and no rejected combination shows.
    """

    accepted: tuple[Candidate, ...]
    rejected: tuple[Fault, ...]
    merged: tuple[Merge, ...]
    pairs: Pairs
    unexplained: tuple[object, ...]


def faults_of(candidate: Candidate, facts: Facts) -> tuple[str, ...]:
    """Return the names of all rules against a canonical candidate."""
    return tuple(rule.__name__ for rule in RULES if rule(candidate, facts) is not None)


def trials_of(facts: Facts, choices: Mapping[str, tuple[Value, ...]]) -> Trials:
    """Return what is tried of a job.

    Args:
        facts: job, rows and machine.
        choices: by knob, the choices that are varied; other knobs keep the user's.
    """
    form, faults = partial(canonical, facts=facts), partial(faults_of, facts=facts)
    own = user_candidate(facts)
    space = Space(own, choices, form, faults)
    valid = next(look for look in space.near(own, (), REPAIRS) if not look.faults)
    space = Space(valid.drawn, choices, form, faults)
    found = sort_out(space)
    rows = covering(space, found.held)
    kept = set().union(*(space.sets_in(row) for row in rows))
    rejected, merged = one_more(space, rows)
    shown = [frozenset(fault.choices) for fault in rejected]
    return Trials(
        accepted=tuple({row.form.key: row.form for row in rows}.values()),
        rejected=tuple(rejected),
        # a knob that is dropped where it says what the user's config says anyway is nothing lost
        merged=tuple(m for m in merged if not (m.drops and m.choices[0] in own.knobs.items())),
        pairs=Pairs(
            held=sum(len(c) == 2 for c in found.held),
            covered=sum(len(c) == 2 and c in kept for c in found.held),
            merged=sum(len(c) == 2 for c in found.merged),
            forbidden=sum(len(c) == 2 for c in found.forbidden),
        ),
        unexplained=tuple(
            choices
            for choices in found.forbidden
            if not _explained(dict(choices), shown, space)
            and not any((one,) in found.merged for one in choices)
        ),
    )


def _explained(
    choices: dict[str, Value], shown: Sequence[frozenset[tuple[str, Value]]], space: Space
) -> bool:
    """Whether choices have a shown fault in them, or every choice of one more knob makes one."""

    def faulty(knobs: dict[str, Value]) -> bool:
        return any(smallest <= knobs.items() for smallest in shown)

    return faulty(choices) or any(
        all(faulty({**choices, name: choice}) for choice in others)
        for name, others in space.choices.items()
        if name not in choices
    )
