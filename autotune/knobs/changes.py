"""What a candidate changes against the reference: a function of trainer, loss, model and data.

Never of the knob's name alone (DESIGN.md 5.5): the batch split is neutral on a dense model and not
on one whose auxiliary loss is computed per micro-batch.
"""

from __future__ import annotations

from typing import Literal

from autotune.core.candidate import Candidate
from autotune.knobs.facts import Facts

Change = Literal["neutral", "data", "mixing", "model"]


def change_class(candidate: Candidate, facts: Facts) -> Change:
    """Return the strongest change a candidate makes.

    Args:
        candidate: a canonical candidate.
        facts: job, rows and machine; the reference rows are cut at ``facts.reference_length``.
    """
    if candidate.get("packing") == "wrapped":
        return "mixing"
    if facts.moe and _splits_differently(candidate, facts):
        return "model"
    if _packs_differently(candidate, facts) or _cuts_differently(candidate, facts):
        return "data"
    return "neutral"


def _splits_differently(candidate: Candidate, facts: Facts) -> bool:
    name = "per_device_train_batch_size"
    return bool(candidate.get(name) != facts.option(name))


def _packs_differently(candidate: Candidate, facts: Facts) -> bool:
    """Whether rows are put together otherwise than in the user's config."""
    own = str(facts.option("packing_strategy")) if facts.option("packing") else "none"
    mine = candidate.get("packing", "none")
    return mine != own or (
        mine != "none" and candidate.get("max_length") != facts.option("max_length")
    )


def _cuts_differently(candidate: Candidate, facts: Facts) -> bool:
    """Whether other tokens are trained than the user's config trains."""
    longest = facts.lengths.longest
    mine, theirs = candidate.get("max_length"), facts.option("max_length")
    mine_cut = longest if mine is None else min(int(mine), longest)
    theirs_cut = longest if theirs is None else min(int(theirs), longest)
    return mine_cut != theirs_cut
