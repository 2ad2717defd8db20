"""The verdict on a candidate: what TRL would refuse, and what the user did not agree to.

One function per rule; each takes the facts and a canonical candidate and returns None when it has
nothing against it, else a reason a person reads. What TRL refuses is in rules_rows.py,
rules_model.py and rules_own.py, what the user asked for is here. Invalid candidates never cost a
probe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.kept import SPLITTING
from autotune.core.units import show_ratio
from autotune.knobs.changes import words_for
from autotune.knobs.consequences import CONSEQUENCES, Effect
from autotune.knobs.facts import Facts
from autotune.knobs.retention import SPLIT, retention, splits_needlessly
from autotune.knobs.rules_model import MODEL_RULES, versions_want_it
from autotune.knobs.rules_own import OWN_RULES
from autotune.knobs.rules_rows import ROW_RULES
from autotune.knobs.translate import EFFECTIVE_BATCH_TOLERANCE, settings

Rule = Callable[[Candidate, Facts], str | None]


@dataclass(frozen=True)
class Verdict:
    """Say whether a candidate may be probed.

    Args:
        valid: whether it may.
        rule: name of the rule that is against it; empty when valid.
        reason: one sentence for a person; empty when valid.
    """

    valid: bool
    rule: str = ""
    reason: str = ""


def effective_batch_held(candidate: Candidate, facts: Facts) -> str | None:
    """Sequences per update stay within 10 % of the user's unless that is allowed to change."""
    if "effective-batch" in facts.job.allow:
        return None
    wanted, got = facts.effective_batch, settings(candidate, facts).sequences_per_update
    if abs(got / wanted - 1.0) > EFFECTIVE_BATCH_TOLERANCE:
        return (
            f"one update would see {got:.1f} sequences instead of {wanted:.1f} "
            "(--allow effective-batch accepts that)"
        )
    return None


def documents_stay_whole(candidate: Candidate, facts: Facts) -> str | None:
    """Documents are not split where the user's own length leaves them whole, unless allowed."""
    if SPLIT in facts.job.allow or not splits_needlessly(candidate, facts):
        return None
    return (
        f"{candidate.get('packing')} rows shorter than the documents split them, and later pieces "
        "do not see what comes before them (--allow split accepts that)"
    )


def enough_is_kept(candidate: Candidate, facts: Facts) -> str | None:
    """A candidate keeps at least the wanted share of the reference's label tokens.

    One that cuts at the user's own length loses nothing that they do not lose themselves, unless
    their config goes on with what is beyond. Splitting has a rule of its own.
    """
    as_theirs = candidate.get("max_length") == facts.option("max_length")
    if candidate.get("packing") in SPLITTING or (as_theirs and not facts.reference.splits):
        return None
    kept, least = retention(candidate, facts), facts.job.min_retention_ratio
    if kept < least:
        return (
            f"max_length {candidate.get('max_length')} keeps {show_ratio(kept)} of the reference's "
            f"label tokens, less than the {show_ratio(least)} asked for (--min-retention)"
        )
    return None


def no_longer_than_the_reference(candidate: Candidate, facts: Facts) -> str | None:
    """An explicit max_length is only exceeded when the user allows it."""
    explicit = facts.job.options.get("max_length")
    length = candidate.get("max_length")
    if explicit is None or not isinstance(length, int) or "longer" in facts.job.allow:
        return None
    if length > int(explicit):
        return f"max_length {length} is beyond your own {explicit} (--allow longer accepts that)"
    return None


def change_is_allowed(candidate: Candidate, facts: Facts) -> str | None:
    """What changes the model that is learned is only searched when the user allows it."""
    asked = words_for(candidate, facts)
    missing = [word for word in asked if word not in facts.job.allow]
    if missing:
        return f"it changes what is learned; --allow {','.join(missing)} accepts that"
    return None


RULES: tuple[Rule, ...] = (
    *ROW_RULES,
    *MODEL_RULES,
    *OWN_RULES,
    versions_want_it,
    no_longer_than_the_reference,
    documents_stay_whole,
    enough_is_kept,
    effective_batch_held,
    change_is_allowed,
)


def judge(candidate: Candidate, facts: Facts, *, own: bool = False) -> Verdict:
    """Return whether a candidate may be probed, and if not, why.

    Args:
        candidate: a canonical candidate.
        facts: job, rows and machine.
        own: it is the user's own config: only what refuses it counts, see
            `autotune.knobs.consequences`.
    """
    for rule in RULES:
        if own and CONSEQUENCES[rule.__name__].effect not in (Effect.REFUSED, Effect.UNABLE):
            continue
        reason = rule(candidate, facts)
        if reason is not None:
            return Verdict(False, rule.__name__, reason)
    return Verdict(True)
