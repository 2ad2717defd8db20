"""Draws the combinations that are tried: every pair of choices of any two knobs occurs in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allpairspy import AllPairs

from autotune.core.candidate import Candidate, Value
from autotune.knobs.catalog import knobs_of
from autotune.knobs.facts import Facts
from autotune.knobs.knob import Knob
from autotune.knobs.needs import lacks

#: Knobs that are not varied on the CPU, and why.
LEFT_OUT: Mapping[str, str] = {
    "allocator": "a setting of CUDA's allocator; on the CPU there is nothing it could change",
    "torch_compile": "compiling every shape takes minutes; no shipped space tries it",
}


def combinations(facts: Facts, left_out: Mapping[str, str]) -> list[Candidate]:
    """Return a pairwise-covering sample of all combinations of a trainer's knobs, in fixed order.

    One choice this machine lacks hides what the others of its combination do, so the choices it
    has are covered once more among themselves; those come first.

    Args:
        facts: job, rows and machine.
        left_out: knobs that are not varied, and why; they keep the user's choice.
    """
    varied = [k for k in knobs_of(facts.job.trainer) if k.name not in left_out]
    every = {k.name: list(choices_of(k, facts)) for k in varied}
    here = {k.name: [c for c in every[k.name] if not lacks(k, c, facts)] for k in varied}
    drawn = (
        Candidate(knobs=dict(zip(choices, row, strict=True)))
        for choices in (here, every)
        for row in AllPairs(list(choices.values()))
    )
    return list({c.key: c for c in drawn}.values())


def choices_of(knob: Knob, facts: Facts) -> Sequence[Value]:
    """Return the choices of a knob that are tried: of numbers, none and the two ends.

    Args:
        knob: a row of the knob table.
        facts: what open-ended knobs take their choices from.
    """
    if knob.choices is not None:
        numbers = [c for c in knob.choices if type(c) is int and c > 0]
        inner = set(numbers) - {min(numbers, default=0), max(numbers, default=0)}
        return [c for c in knob.choices if type(c) is not int or c not in inner]
    longest = facts.lengths.longest
    open_ended: dict[str, tuple[Value, ...]] = {
        "per_device_train_batch_size": (1, 2, 4),
        "max_length": (longest // 2, longest, longest + 7, None),
    }
    return open_ended[knob.name]
