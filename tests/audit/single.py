"""Finds what one more choice does to a combination that is accepted: it breaks it, or is merged.

Pure, as `tests.audit.cover`. The accepted combination and the other differ in one knob, so nothing
else is wrong with the other; which of its choices are needed for that is found by changing each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autotune.core.candidate import Candidate, Value
from tests.audit.cover import Choices, Look, Space


@dataclass(frozen=True)
class Fault:
    """A combination that is invalid through the choices named and nothing else.

    Args:
        candidate: the combination.
        choices: the smallest faulty assignment: change any of them, and it is valid.
        rules: what is against it.
        without: valid candidates, canonical, that differ from it in one of the choices.
    """

    candidate: Candidate
    choices: Choices
    rules: tuple[str, ...]
    without: tuple[Candidate, ...]


@dataclass(frozen=True)
class Merge:
    """A combination that is searched as another one.

    Args:
        candidate: the combination; canonical but for the choice that is lost.
        choices: the choice that is lost, then those that are needed for that.
        into: the candidate that stands for it.
    """

    candidate: Candidate
    choices: Choices
    into: Candidate

    @property
    def turns_into(self) -> Value:
        """What the lost choice is replaced by; None where the knob is dropped."""
        return self.into.get(self.choices[0][0])

    @property
    def drops(self) -> bool:
        """Whether the knob is gone."""
        return self.choices[0][0] not in self.into.knobs


_Found = TypeVar("_Found", Fault, Merge)


def one_more(space: Space, rows: Sequence[Look]) -> tuple[list[Fault], list[Merge]]:
    """Return every smallest faulty assignment and every smallest merge next to accepted rows.

    Of combinations with the same faulty choices those with the fewest rules against them are kept.

    Args:
        space: the choices and what is made of them.
        rows: accepted combinations.
    """
    faults: list[Fault] = []
    merges: list[Merge] = []
    for look in _neighbours(space, rows):
        lost = [knob for knob in look.drawn.knobs.items() if knob not in look.form.knobs.items()]
        if look.faults:
            known = _shown(faults, look)
            if not any(set(fault.rules) <= set(look.faults) for fault in known):
                fault = _fault(space, look)
                if not _kept(rows, fault.choices):
                    faults.append(fault)
        elif len(lost) == 1 and lost[0][0] in space.choices:
            known = _shown(merges, look)
            if not any(merge.choices[0] == lost[0] for merge in known):
                merge = _merge(space, look, lost[0])
                if not _kept(rows, merge.choices):
                    merges.append(merge)
    return (
        _smallest(faults, lambda fault: {*fault.choices, *fault.rules}),
        _smallest(merges, lambda merge: {*merge.choices, ("lost", merge.choices[0])}),
    )


def _shown(found: Iterable[_Found], look: Look) -> list[_Found]:
    """Return the faults or merges whose choices a combination has."""
    return [one for one in found if set(one.choices) <= look.drawn.knobs.items()]


def _kept(rows: Sequence[Look], choices: Choices) -> bool:
    """Whether an accepted row has them: two changes together would undo it, so more is at work."""
    return any(row.keeps(choices) for row in rows)


def _smallest(found: list[_Found], parts: Callable[[_Found], set[object]]) -> list[_Found]:
    """Leave out what has all the parts of another, and more.

    Args:
        found: faults, or merges.
        parts: the choices of one, and what it is about.
    """
    sets = [parts(one) for one in found]
    return [
        one
        for one, mine in zip(found, sets, strict=True)
        if not any(others < mine for others in sets)
    ]


def _neighbours(space: Space, rows: Iterable[Look]) -> Iterator[Look]:
    """Yield combinations one choice away from the canonical form of a row."""
    for row in rows:
        for name, choices in space.choices.items():
            for choice in choices:
                if row.form.knobs.get(name, choices) != choice:
                    yield space.look(row.form.with_knobs(**{name: choice}))


def _fault(space: Space, look: Look) -> Fault:
    needed = _needed(space, look, lambda other: not other.faults)
    choices = tuple((name, look.drawn.knobs[name]) for name in needed)
    without = {other.form.key: other.form for others in needed.values() for other in others}
    return Fault(look.drawn, choices, look.faults, tuple(without.values()))


def _merge(space: Space, look: Look, lost: tuple[str, Value]) -> Merge:
    needed = _needed(space, look, lambda other: other.keeps((lost,)))
    partners = tuple((name, look.drawn.knobs[name]) for name in needed)
    return Merge(look.drawn, (lost, *partners), look.form)


def _needed(space: Space, look: Look, undone: Callable[[Look], bool]) -> dict[str, list[Look]]:
    """Return the knobs one of whose other choices undoes it, with every combination that does."""
    found = {}
    for name, choices in space.choices.items():
        if name in look.drawn.knobs:
            others = [space.look(look.drawn.with_knobs(**{name: c})) for c in choices]
            undoing = [other for other in others if undone(other)]
            if undoing:
                found[name] = undoing
    return found
