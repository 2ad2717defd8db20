"""Which clauses of rules and merges the audit's trials exercise, and which it cannot, with why.

A clause counts as exercised by a combination in which it is the only one at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from inspect import getmembers, isfunction

from autotune.knobs import placebos
from autotune.knobs.facts import Facts
from autotune.knobs.rules import RULES
from autotune.knobs.translate import canonical
from tests.audit.audit import DEPRECATES, POLICIES
from tests.audit.clauses import Clause, clauses_of, gone_through
from tests.audit.plan import Trials

MERGES = tuple(f for name, f in getmembers(placebos, isfunction) if name.startswith("merge_"))

#: Rules no combination can exercise on this machine, and why.
OUT_OF_REACH: Mapping[str, str] = {
    "flash_attention_is_half": "needs an accelerator and flash attention's kernels",
    "layerwise_optimizers_do_not_accumulate": "needs GaLore or APOLLO, which are not installed",
    "liger_leaves_the_head": "needs an accelerator and Liger",
    "layers_are_replaced_once": "needs an accelerator, Liger and the hub's kernels",
}


def exercised(facts: Facts, trials: Trials) -> frozenset[Clause]:
    """Return the clauses that the trials of one job exercise."""
    rules = {rule.__name__: rule for rule in RULES}
    found: set[Clause] = set()
    for fault in trials.rejected:
        form = canonical(fault.candidate, facts)
        alone = fault.rules if len(fault.rules) == 1 else {DEPRECATES} & set(fault.rules)
        for name in alone:
            found |= gone_through([rules[name]], partial(rules[name], form, facts))
    for merge in trials.merged:
        lost = f"'{merge.choices[0][0]}'"
        through = gone_through(MERGES, partial(canonical, merge.candidate, facts))
        found |= {clause for clause in through if lost in clause.text}
    return frozenset(found)


def unexercised(found: Iterable[Clause]) -> tuple[Clause, ...]:
    """Return the clauses of all rules about TRL and of all merges that are not among these."""
    claims = [rule for rule in RULES if rule.__name__ not in POLICIES]
    every = {clause for function in (*claims, *MERGES) for clause in clauses_of(function)}
    return tuple(sorted(every - set(found)))
