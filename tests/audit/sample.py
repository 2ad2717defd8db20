"""Draws the combinations that are tried: every pair of choices of any two knobs occurs in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allpairspy import AllPairs

from autotune.core.candidate import Candidate, Value
from autotune.knobs.catalog import Knob, knobs_of
from autotune.knobs.facts import Facts

#: Knobs that are not varied on the CPU, and why.
LEFT_OUT: Mapping[str, str] = {}


def combinations(facts: Facts, left_out: Mapping[str, str]) -> list[Candidate]:
    """Return a pairwise-covering sample of all combinations of a trainer's knobs, in fixed order.

    Args:
        facts: job, rows and machine.
        left_out: knobs that are not varied, and why; they keep the user's choice.
    """
    varied = [k for k in knobs_of(facts.job.trainer) if k.name not in left_out]
    choices = [list(choices_of(k, facts)) for k in varied]
    return [
        Candidate(knobs=dict(zip((k.name for k in varied), row, strict=True)))
        for row in AllPairs(choices)
    ]


def choices_of(knob: Knob, facts: Facts) -> Sequence[Value]:
    """Return the choices of a knob that are tried, edges included.

    Args:
        knob: a row of the knob table.
        facts: what open-ended knobs take their choices from.
    """
    if knob.choices is not None:
        return knob.choices
    longest = facts.lengths.longest
    open_ended: dict[str, tuple[Value, ...]] = {
        "per_device_train_batch_size": (1, 2, 4),
        "max_length": (longest // 2, longest, longest + 7, None),
    }
    return open_ended[knob.name]
