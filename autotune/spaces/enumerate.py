"""Turns a space into its valid candidates for one job: enumerated, canonical, without repeats.

The list is the whole search: the study proposes only from it. A space too large to be looked at
whole is sampled, always the same way, and says so.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.core.candidate import Candidate, Value
from autotune.core.result import Skipped
from autotune.knobs.catalog import KNOBS, knobs_of, user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.no_effect import idle_words, shown
from autotune.knobs.rules import judge
from autotune.knobs.translate import canonical, simplified
from autotune.knobs.versions import canonical_choice
from autotune.spaces.choices import Dropped, possible, searched_choices
from autotune.spaces.schema import Dimension, Space

#: Most assignments looked at: two or three seconds of rules, and far more than are ever probed.
MOST_ASSIGNMENTS = 5_000


@dataclass(frozen=True)
class Enumerated:
    """The candidates of a space.

    Args:
        choices: the values tried of each knob, in the order of the knob table; frozen in the
            study.
        candidates: valid candidates in canonical form, in a fixed order.
        skipped: what was left out and why, most first.
        merged: assignments that stand for a candidate already in the list.
        notices: choices this machine or the user does not let it try, one sentence a reason.
    """

    choices: dict[str, tuple[Value, ...]]
    candidates: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]
    merged: int
    notices: tuple[str, ...] = ()


def enumerate_space(space: Space, facts: Facts, pinned: Mapping[str, Value]) -> Enumerated:
    """Return the valid candidates of a space.

    Args:
        space: the choices to try.
        facts: job, rows and machine.
        pinned: options the user fixed with ``--set``; knobs among them are not searched, and a
            fixed packing strategy is the only one tried.
    """
    own = user_candidate(facts)
    known = [row.name for row in knobs_of(facts.job.trainer)]
    listed = space.dimensions()
    dimensions = {
        name: _by_newest_names(name, listed[name], facts) for name in known if name in listed
    }
    dropped = Dropped()
    choices = searched_choices(dimensions, facts, own, pinned, dropped)
    settled = canonical(own, facts)  # what the user's own choices mean on this machine
    fixed = {
        n: possible(n, settled.get(n, v), facts) for n, v in own.knobs.items() if n not in choices
    }
    seen: dict[str, Candidate] = {}
    against: dict[str, Counter[str]] = {}
    merged = 0
    tree = _Tree(dimensions, choices, fixed, own)
    assignments, left_out = tree.assignments(facts.job.seed)
    acting: set[tuple[str, Value]] = set()
    idle: dict[tuple[str, Value], str] = {}
    for assignment in assignments:
        candidate, why = simplified(Candidate(knobs={**fixed, **assignment}), facts)
        acting |= set(candidate.knobs.items())
        idle |= {(name, assignment[name]): why[name] for name in why.keys() & assignment.keys()}
        if candidate.key in seen:
            merged += 1
            continue
        verdict = judge(candidate, facts)
        if verdict.valid:
            seen[candidate.key] = candidate
        else:
            against.setdefault(verdict.rule, Counter())[verdict.reason] += 1
    refused = sorted(_skipped(against), key=lambda line: -line.count)
    lines = [*refused, *dropped.lines(), *left_out]
    notices = [
        *_not_had(space, known, facts),
        *dropped.notices(),
        *_never_act(idle, acting),
        *(f"Not all is tried: {line.reason}." for line in left_out),
        *(_nothing_left(space, refused) if not seen else ()),
    ]
    return Enumerated(
        choices,
        tuple(seen.values()),
        tuple(sorted(lines, key=lambda line: -line.count)),
        merged,
        tuple(notices),
    )


def _by_newest_names(name: str, dimension: Dimension, facts: Facts) -> Dimension:
    """Return a dimension in which each choice has the one name the installed versions want."""
    choices, versions = dimension.choices, facts.versions
    if choices != "auto":
        choices = list(dict.fromkeys(canonical_choice(name, c, versions) for c in choices))
    when = {o: [canonical_choice(o, c, versions) for c in a] for o, a in dimension.when.items()}
    return Dimension(choices=choices, when=when)


def _not_had(space: Space, known: list[str], facts: Facts) -> list[str]:
    """Say which knobs of a space for any trainer this one does not have."""
    without = [row.name for row in KNOBS if row.name in space.knobs and row.name not in known]
    if not without:
        return []
    return [f"Not tried, since {facts.job.trainer.value} has no such knob: {', '.join(without)}."]


def _nothing_left(space: Space, refused: list[Skipped]) -> list[str]:
    """Say why nothing of a space is tried."""
    why = f", most often because {refused[0].reason}" if refused else ""
    return [f"Nothing in the space {space.name} may be tried{why}: your own config is measured."]


def _never_act(
    idle: Mapping[tuple[str, Value], str], acting: set[tuple[str, Value]]
) -> tuple[str, ...]:
    """Say which choices do nothing in any candidate, a sentence for every reason."""
    never = {f"{n} {shown(v)}": why for (n, v), why in idle.items() if (n, v) not in acting}
    return idle_words("any candidate, so not tried apart", never)


@dataclass(frozen=True)
class _Tree:
    """Assignments of a space's knobs: a conditional knob branches only under its condition.

    Args:
        dimensions: every knob of the space that the trainer has.
        choices: the values of the searched ones.
        fixed: choices of all others.
        own: the user's own config.
    """

    dimensions: Mapping[str, Dimension]
    choices: Mapping[str, tuple[Value, ...]]
    fixed: Mapping[str, Value]
    own: Candidate

    def assignments(self, seed: int) -> tuple[list[dict[str, Value]], list[Skipped]]:
        """Return the assignments to look at, and a line that says so when that is not all."""
        names = self._in_order()
        found = list(itertools.islice(self._all(names, {}), MOST_ASSIGNMENTS + 1))
        if len(found) <= MOST_ASSIGNMENTS:
            return found, []
        total = math.prod(len(values) for values in self.choices.values())
        left_out = Skipped(
            what="a sample of the space",
            reason=(
                f"the space has up to {total:,} assignments; a fixed sample of "
                f"{MOST_ASSIGNMENTS:,} and every single change of your own config are looked at"
            ),
            count=total - MOST_ASSIGNMENTS,
        )
        rng = random.Random(seed)
        return [*self._single_changes(), *self._drawn(names, rng)], [left_out]

    def _all(self, names: list[str], begun: dict[str, Value]) -> Iterator[dict[str, Value]]:
        if not names:
            yield {name: begun[name] for name in self.choices}
            return
        name, *rest = names
        for value in self._open(name, begun):
            yield from self._all(rest, {**begun, name: value})

    def _drawn(self, names: list[str], rng: random.Random) -> Iterator[dict[str, Value]]:
        for _ in range(MOST_ASSIGNMENTS):
            made: dict[str, Value] = {}
            for name in names:
                made[name] = rng.choice(self._open(name, made))
            yield {name: made[name] for name in self.choices}

    def _single_changes(self) -> Iterator[dict[str, Value]]:
        """Every choice once, all else as in the user's own config (or the knob's default)."""
        plain = {name: self._default(name) for name in self.choices}
        for name, values in self.choices.items():
            for value in values:
                yield {**plain, name: value}

    def _open(self, name: str, begun: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return the choices of a knob under those made: outside its condition there is one."""
        for other, allowed in self.dimensions[name].when.items():
            # A condition on a knob that this trainer does not have is no condition.
            made = begun if other in begun else self.fixed
            if other in made and made[other] not in allowed:
                return (self._default(name),)
        return self.choices[name]

    def _default(self, name: str) -> Value:
        mine = self.own.get(name)
        return mine if mine in self.choices[name] else self.choices[name][0]

    def _in_order(self) -> list[str]:
        """Return the searched knobs, each after those its condition looks at."""
        order: list[str] = []
        left = list(self.choices)
        while left:
            ready = [n for n in left if not any(o in left for o in self.dimensions[n].when)]
            ready = ready or left[:1]
            order += ready
            left = [n for n in left if n not in ready]
        return order


def _skipped(against: Mapping[str, Counter[str]]) -> list[Skipped]:
    """Say what was left out, a line per rule: its commonest reason, and how many others it had."""
    lines = []
    for rule, reasons in against.items():
        reason, _ = reasons.most_common(1)[0]
        others = len(reasons) - 1
        more = f" (and {others} like it)" if others else ""
        lines.append(
            Skipped(what=rule.replace("_", " "), reason=reason + more, count=reasons.total())
        )
    return lines
