"""The choices of every knob of a space for one job: ``auto`` filled in, what cannot be left out.

A choice that this machine cannot do, that the installed versions deprecate or that the user did
not allow is dropped here, once, before combinations are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.candidate import Candidate, Value
from autotune.core.kept import SPLITTING
from autotune.core.result import Skipped
from autotune.knobs.catalog import knob
from autotune.knobs.changes import word_for, words_for
from autotune.knobs.facts import Facts
from autotune.knobs.knob import Knob
from autotune.knobs.needs import why_not
from autotune.knobs.retention import SPLIT
from autotune.spaces.schema import Dimension, as_written

#: Shortest packed row worth trying, in tokens.
_SHORTEST_PACKED = 128


@dataclass
class Dropped:
    """Collect choices that are not tried: by reason, and by the word that would allow them."""

    by_reason: dict[str, list[tuple[str, Value]]] = field(default_factory=dict)
    by_word: dict[str, list[tuple[str, Value]]] = field(default_factory=dict)

    def lines(self) -> list[Skipped]:
        """Return a line per reason, with every choice it concerns."""
        by_word = {f"only with --allow {word}": c for word, c in self.by_word.items()}
        return [
            Skipped(what=_named(choices), reason=f"{_named(choices)}: {reason}", count=len(choices))
            for reason, choices in {**self.by_reason, **by_word}.items()
        ]

    def notices(self) -> list[str]:
        """Return one sentence per reason of the machine's, and one for all that may be allowed."""
        found = [f"Not tried: {_named(c)}: {reason}." for reason, c in self.by_reason.items()]
        if self.by_word:
            choices = [choice for concerned in self.by_word.values() for choice in concerned]
            words = ",".join(self.by_word)
            found.append(f"Not tried without --allow {words}: {_named(choices)}.")
        return found


def searched_choices(
    dimensions: Mapping[str, Dimension],
    facts: Facts,
    own: Candidate,
    pinned: Mapping[str, Value],
    dropped: Dropped,
) -> dict[str, tuple[Value, ...]]:
    """Return the values tried of every searched knob; both in the order of the knob table.

    Args:
        dimensions: the space's knobs that the trainer has, in the order of the table.
        facts: job, rows and machine.
        own: the user's own config.
        pinned: options the user fixed with ``--set``; knobs among them are not searched, and a
            fixed packing strategy is the only one tried.
        dropped: told of every choice that is left out.
    """
    packs = {str(own.get("packing", "none"))} - {"none"}
    if "packing" in dimensions:
        packs |= {str(c) for c in _listed("packing", dimensions["packing"], facts, own)} - {"none"}
    found: dict[str, tuple[Value, ...]] = {}
    for name, dimension in dimensions.items():
        if name in pinned or any(n in pinned for n in knob(name).fixed_by):
            continue
        listed = in_table_order(knob(name), _listed(name, dimension, facts, own))
        if name == "max_length" and dimension.choices == "auto" and packs:
            lengths = _packed_lengths(facts, packs, dropped)
            listed = in_table_order(knob(name), tuple({*listed, *lengths}))
        kept = tuple(choice for choice in listed if _is_offered(name, choice, facts, dropped))
        if _leaves_own_out(name, kept, own, facts):
            kept = (own.get(name), *kept)
        if kept:
            found[name] = in_table_order(knob(name), kept)
    strategy = pinned.get("packing_strategy")
    if strategy is not None and "packing" in found:
        found["packing"] = tuple(c for c in ("none", strategy) if c in found["packing"]) or (
            strategy,
        )
    return found


def in_table_order(row: Knob, choices: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return choices as the knob table has them, numbers ascending; the user's own others last.

    What a space tries, and the study it is kept in, so depend on no order in a file.
    """
    known = row.choices or ()

    def place(choice: Value) -> tuple[int, float]:
        if choice in known:
            return known.index(choice), 0.0
        return len(known), float(choice) if isinstance(choice, int | float) else -1.0

    return tuple(sorted(choices, key=place))


def possible(name: str, value: Value, facts: Facts) -> Value:
    """Return the user's choice of a knob that is not searched, or its first where this machine
    cannot do it: the user's own config still reports that."""
    known = knob(name).choices
    return known[0] if known and why_not(knob(name), value, facts) else value


def _is_offered(name: str, choice: Value, facts: Facts, dropped: Dropped) -> bool:
    reason = why_not(knob(name), choice, facts)
    word = word_for(name, choice, facts)
    if reason:
        dropped.by_reason.setdefault(reason, []).append((name, choice))
        return False
    if word and word not in facts.job.allow:
        dropped.by_word.setdefault(word, []).append((name, choice))
        return False
    return True


def _leaves_own_out(name: str, kept: tuple[Value, ...], own: Candidate, facts: Facts) -> bool:
    """Whether the user's own choice has to be added to those of the space.

    It has, of a knob that changes what is learned, where the user set it, or where none of the
    others is allowed (a micro-batch of KTO).
    """
    mine = own.get(name)
    if not kept or mine in kept or why_not(knob(name), mine, facts):
        return False
    known = knob(name).choices or ()
    if name in facts.job.options and any(word_for(name, choice, facts) for choice in known):
        return True
    words = {w for c in kept for w in words_for(own.with_knobs(**{name: c}), facts)}
    return bool(words - facts.job.allow)


def _listed(name: str, dimension: Dimension, facts: Facts, own: Candidate) -> tuple[Value, ...]:
    if dimension.choices != "auto":
        return tuple(dimension.choices)
    if name == "max_length":
        explicit = facts.job.options.get("max_length")
        limit = None if explicit is None else int(explicit)
        return tuple(
            facts.lengths.max_length_choices(
                facts.longest_tried, facts.job.min_retention_ratio, limit
            )
        )
    if name == "per_device_train_batch_size":
        return _batches(facts, own)
    known = knob(name).choices
    return known if known is not None else (own.get(name),)


def _packed_lengths(facts: Facts, strategies: set[str], dropped: Dropped) -> list[int]:
    """Powers of two a packed row may have: it need not be as long as the longest document.

    Bounded by the model's positions, by what the user allows, by four times the longest row, and
    by the effective batch: a row may not hold more documents than one update should see. Where
    rows so short would cut more than may be lost, splitting is left, which needs a word.
    """
    explicit = facts.job.options.get("max_length")
    limits = [int(n) for n in (facts.longest_tried, explicit) if n is not None]
    top = min([4 * facts.lengths.longest, *limits])
    lengths = [2**i for i in range(_SHORTEST_PACKED.bit_length() - 1, top.bit_length())]
    found = [
        n
        for n in lengths
        if n <= top and facts.sequences_per_row(n, "bfd_split") <= 1.1 * facts.effective_batch
    ]
    if SPLIT in facts.job.allow:
        return found
    least = facts.job.min_retention_ratio * facts.reference.labels(facts.lengths)
    enough = [n for n in found if facts.kept(n, "bfd")[0] >= least]
    for strategy in SPLITTING:
        if strategy in strategies and not _unallowed(strategy, facts):
            named = f"packing {strategy} at max_length"
            refused = [(named, n) for n in found if n not in enough]
            if refused:
                dropped.by_word.setdefault(SPLIT, []).extend(refused)
    return enough


def _unallowed(strategy: str, facts: Facts) -> bool:
    return bool({word_for("packing", strategy, facts)} - {""} - facts.job.allow)


def _batches(facts: Facts, own: Candidate) -> tuple[Value, ...]:
    """Powers of two up to the effective batch, and the user's own."""
    top = max(1, min(int(facts.effective_batch), len(facts.lengths)))
    powers = {2**i for i in range(top.bit_length()) if 2**i <= top}
    mine = own.get("per_device_train_batch_size")
    return tuple(sorted({*powers, top, int(mine or 1)}))


def _named(choices: list[tuple[str, Value]]) -> str:
    by_knob: dict[str, list[str]] = {}
    for name, choice in choices:
        by_knob.setdefault(name, []).append(as_written(choice))
    return "; ".join(f"{name} {', '.join(values)}" for name, values in by_knob.items())
