"""Sorts choices and pairs of choices by what the rules make of them, and covers what they allow.

Pure: knows candidates and two functions of them, neither rules nor TRL. A set of one or two
choices is *held* when a valid candidate keeps it, *merged* when valid candidates that ask for it
all end as another one, *forbidden* when no candidate with it is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, product

from autotune.core.candidate import Candidate, Value

#: One or two choices, by knob.
Choices = tuple[tuple[str, Value], ...]
#: Choices beside those asked for that may be changed to make a candidate valid.
REPAIRS = 2


@dataclass(frozen=True)
class Look:
    """A candidate and what is made of it.

    Args:
        drawn: a choice for every knob.
        form: its canonical form.
        faults: rules that are against the form; empty when it is valid.
    """

    drawn: Candidate
    form: Candidate
    faults: tuple[str, ...]

    def keeps(self, choices: Choices) -> bool:
        """Whether the form is valid and still has these choices."""
        knobs = self.form.knobs
        return not self.faults and all(k in knobs and knobs[k] == c for k, c in choices)


@dataclass(frozen=True)
class Space:
    """All combinations of the choices of some knobs.

    Args:
        start: a valid candidate with a choice for every knob there is.
        choices: the choices of the knobs that are varied.
        form: returns the canonical form of a candidate.
        faults: returns the names of the rules against a canonical form.
    """

    start: Candidate
    choices: Mapping[str, tuple[Value, ...]]
    form: Callable[[Candidate], Candidate]
    faults: Callable[[Candidate], tuple[str, ...]]
    _seen: dict[tuple[tuple[str, Value], ...], Look] = field(default_factory=dict, repr=False)

    def look(self, drawn: Candidate) -> Look:
        """Return what is made of a candidate."""
        key = tuple(drawn.knobs.items())
        if key not in self._seen:
            form = self.form(drawn)
            self._seen[key] = Look(drawn, form, self.faults(form))
        return self._seen[key]

    def near(self, candidate: Candidate, asked: Choices, repairs: int) -> Iterator[Look]:
        """Yield what is made of a candidate with choices asked for, then with others changed too.

        Args:
            candidate: where to start.
            asked: choices that are set and stay.
            repairs: most other knobs that are changed; fewer come first.
        """
        base = candidate.with_knobs(**dict(asked))
        free = [name for name in self.choices if name not in dict(asked)]
        for count in range(repairs + 1):
            for names in combinations(free, count):
                for picked in product(*(self.choices[name] for name in names)):
                    yield self.look(base.with_knobs(**dict(zip(names, picked, strict=True))))

    def sets_in(self, look: Look) -> set[Choices]:
        """Return the single choices and the pairs a valid candidate's form keeps."""
        if look.faults:
            return set()
        kept = [
            (name, look.form.knobs[name])
            for name, choices in self.choices.items()
            if name in look.form.knobs and look.form.knobs[name] in choices
        ]
        return {(one,) for one in kept} | set(combinations(kept, 2))


@dataclass(frozen=True)
class SortedOut:
    """Every choice and every pair of choices of two knobs, by what the rules make of it.

    Args:
        held: a valid candidate for each that one keeps.
        merged: those that every valid candidate loses.
        forbidden: those no valid candidate has; of pairs, those with a forbidden choice too.
    """

    held: Mapping[Choices, Candidate]
    merged: tuple[Choices, ...]
    forbidden: tuple[Choices, ...]


def sort_out(space: Space) -> SortedOut:
    """Sort all single choices and pairs of a space; deterministic."""
    held: dict[Choices, Candidate] = {}
    others: dict[Choices, bool] = {}  # whether there is a valid candidate that loses it
    singles = [(name, choice) for name, choices in space.choices.items() for choice in choices]

    def valid_ones(asked: Choices) -> bool:
        """Look for a valid candidate that keeps the choices, or else one that loses them."""
        parts = [others[(one,)] for one in asked if len(asked) > 1 and (one,) in others]
        if False in parts:
            return False
        found = False
        for look in space.near(space.start, asked, REPAIRS):
            for kept in space.sets_in(look):
                held.setdefault(kept, look.drawn)
            found = found or not look.faults
            if asked in held or (found and parts):
                break
        return found

    pairs = [(a, b) for a, b in combinations(singles, 2) if a[0] != b[0]]
    for asked in (*((one,) for one in singles), *pairs):
        if asked not in held:
            valid = valid_ones(asked)
            if asked not in held:
                others[asked] = valid
    order = {single: at for at, single in enumerate(singles)}
    ranked = sorted(held, key=lambda choices: (len(choices), [order[c] for c in choices]))
    return SortedOut(
        {choices: held[choices] for choices in ranked},
        tuple(choices for choices, valid in others.items() if valid),
        tuple(choices for choices, valid in others.items() if not valid),
    )


def covering(space: Space, held: Mapping[Choices, Candidate]) -> list[Look]:
    """Return valid candidates that keep every held choice and pair; greedy and deterministic.

    Args:
        space: the choices and what is made of them.
        held: what is to be covered, each with a candidate that has it.
    """
    todo = dict.fromkeys(sorted(held, key=len, reverse=True))
    rows: list[Look] = []
    while todo:
        seed = next(iter(todo))
        row = space.look(held[seed])
        for name, choices in space.choices.items():
            tries = [space.look(row.drawn.with_knobs(**{name: choice})) for choice in choices]
            row = max(
                [row, *(t for t in tries if t.keeps(seed))],
                key=lambda look: len(space.sets_in(look) & todo.keys()),
            )
        for kept in space.sets_in(row):
            todo.pop(kept, None)
        rows.append(row)
    return rows
