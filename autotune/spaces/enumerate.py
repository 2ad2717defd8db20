"""Turns a space into its valid candidates for one job: enumerated, canonical, without repeats.

The list is the whole search: the study proposes only from it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.core.candidate import Candidate, Value
from autotune.core.result import Skipped
from autotune.knobs.catalog import knob, user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.rules import judge
from autotune.knobs.translate import canonical
from autotune.spaces.schema import Dimension, Space

#: Shortest packed row worth trying, in tokens.
_SHORTEST_PACKED = 128


@dataclass(frozen=True)
class Enumerated:
    """The candidates of a space.

    Args:
        choices: the values tried of each knob, in the order of the space; frozen in the study.
        candidates: valid candidates in canonical form, in a fixed order.
        skipped: what was left out and why, most first.
        merged: assignments that stand for a candidate already in the list.
    """

    choices: dict[str, tuple[Value, ...]]
    candidates: tuple[Candidate, ...]
    skipped: tuple[Skipped, ...]
    merged: int


def enumerate_space(space: Space, facts: Facts, pinned: Mapping[str, Value]) -> Enumerated:
    """Return the valid candidates of a space.

    Args:
        space: the choices to try.
        facts: job, rows and machine.
        pinned: options the user fixed with ``--set``; knobs among them are not searched, and a
            fixed packing strategy is the only one tried.
    """
    dimensions = space.dimensions()
    own = user_candidate(facts)
    packs = "packing" in dimensions or own.get("packing") != "none"
    choices = {
        n: _choices(n, d, facts, own, packs) for n, d in dimensions.items() if n not in pinned
    }
    strategy = pinned.get("packing_strategy")
    if strategy is not None and "packing" in choices:
        choices["packing"] = tuple(c for c in ("none", strategy) if c in choices["packing"]) or (
            strategy,
        )
    fixed = {n: _possible(n, v, facts) for n, v in own.knobs.items() if n not in choices}
    seen: dict[str, Candidate] = {}
    against: dict[str, Counter[str]] = {}
    merged = 0
    for values in itertools.product(*choices.values()):
        assignment = dict(zip(choices, values, strict=True))
        if not all(
            _applies(n, v, dimensions[n], assignment, fixed, own) for n, v in assignment.items()
        ):
            continue
        candidate = canonical(Candidate(knobs={**fixed, **assignment}), facts)
        if candidate.key in seen:
            merged += 1
            continue
        verdict = judge(candidate, facts)
        if verdict.valid:
            seen[candidate.key] = candidate
        else:
            against.setdefault(verdict.rule, Counter())[verdict.reason] += 1
    return Enumerated(choices, tuple(seen.values()), _skipped(against), merged)


def _choices(
    name: str, dimension: Dimension, facts: Facts, own: Candidate, packs: bool
) -> tuple[Value, ...]:
    if dimension.choices != "auto":
        return tuple(dict.fromkeys(dimension.choices))
    if name == "max_length":
        explicit = facts.job.options.get("max_length")
        limit = None if explicit is None else int(explicit)
        found = facts.lengths.max_length_choices(
            facts.positions, facts.job.min_retention_ratio, limit
        )
        return tuple(sorted({*found, *(_packed_lengths(facts, limit) if packs else ())}))
    if name == "per_device_train_batch_size":
        return _batches(facts, own)
    known = knob(name).choices
    return known if known is not None else (own.get(name),)


def _possible(name: str, value: Value, facts: Facts) -> Value:
    """Return the user's choice of a knob that is not searched, or its first where this machine
    cannot do it: the user's own config still reports that."""
    lacks = knob(name).needs == "an accelerator" and facts.device.kind == "cpu"
    known = knob(name).choices
    return known[0] if lacks and known else value


def _packed_lengths(facts: Facts, explicit: int | None) -> list[int]:
    """Powers of two a packed row may have: it need not be as long as the longest document.

    Bounded by the model's positions, by what the user allows, by four times the longest row, and
    by the effective batch: a row may not hold more documents than one update should see.
    """
    limits = [n for n in (facts.positions, explicit) if n is not None]
    top = min([4 * facts.lengths.longest, *limits])
    lengths = [2**i for i in range(_SHORTEST_PACKED.bit_length() - 1, top.bit_length())]
    return [
        n
        for n in lengths
        if n <= top and facts.sequences_per_row(n, "bfd_split") <= 1.1 * facts.effective_batch
    ]


def _batches(facts: Facts, own: Candidate) -> tuple[Value, ...]:
    """Powers of two up to the effective batch, and the user's own."""
    top = max(1, min(int(facts.effective_batch), len(facts.lengths)))
    powers = {2**i for i in range(top.bit_length()) if 2**i <= top}
    mine = own.get("per_device_train_batch_size")
    return tuple(sorted({*powers, top, int(mine or 1)}))


def _applies(
    name: str,
    value: Value,
    dimension: Dimension,
    assignment: Mapping[str, Value],
    fixed: Mapping[str, Value],
    own: Candidate,
) -> bool:
    """Whether a choice of a conditional knob is to be tried; outside its condition only one is."""
    for other, allowed in dimension.when.items():
        if assignment.get(other, fixed.get(other)) not in allowed:
            return value == dimension_default(dimension, own.get(name))
    return True


def dimension_default(dimension: Dimension, own: Value) -> Value:
    """Return the choice a conditional knob has where it does not apply."""
    choices = dimension.choices
    if choices == "auto" or own in choices:
        return own
    return choices[0]


def _skipped(against: Mapping[str, Counter[str]]) -> tuple[Skipped, ...]:
    """Say what was left out, a line per rule: its commonest reason, and how many others it had."""
    lines = []
    for rule, reasons in against.items():
        reason, _ = reasons.most_common(1)[0]
        others = len(reasons) - 1
        more = f" (and {others} like it)" if others else ""
        lines.append(
            Skipped(what=rule.replace("_", " "), reason=reason + more, count=reasons.total())
        )
    return tuple(sorted(lines, key=lambda line: -line.count))
