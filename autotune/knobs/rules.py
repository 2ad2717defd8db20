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
from autotune.core.units import show_ratio
from autotune.knobs.changes import words_for
from autotune.knobs.consequences import CONSEQUENCES, Effect
from autotune.knobs.facts import Facts
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


def enough_is_kept(candidate: Candidate, facts: Facts) -> str | None:
    """A candidate keeps at least the wanted share of the reference label tokens.

    One that leaves the user's own length as it is cuts nothing they do not cut themselves.
    """
    if candidate.get("max_length") == facts.option("max_length"):
        return None
    kept, least = retention(candidate, facts), facts.job.min_retention_ratio
    if kept < least:
        return (
            f"max_length {candidate.get('max_length')} keeps {show_ratio(kept)} of the label "
            f"tokens, less than the {show_ratio(least)} asked for (--min-retention)"
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


def retention(candidate: Candidate, facts: Facts) -> float:
    """Return the share of the reference label tokens a candidate keeps, 0..1.

    ``bfd_split`` and ``wrapped`` lose nothing; the others cut rows at ``max_length``.
    """
    reference = facts.lengths.labels_kept(facts.reference_length)
    if reference == 0:
        return 1.0
    length = candidate.get("max_length")
    if candidate.get("packing") in ("bfd_split", "wrapped") or length is None:
        return 1.0
    return min(1.0, facts.lengths.labels_kept(int(length)) / reference)
