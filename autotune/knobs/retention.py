"""How much of what the user's config trains a candidate keeps, with all that comes before it.

From candidates to the arithmetic of ``autotune.core.kept``; it says what splitting needs the user's
word, and refuses nothing itself.
"""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.kept import SPLITTING, Documents, useful_ratio
from autotune.knobs.facts import Facts

#: Word of ``--allow`` that lets documents be split where their later tokens lose their beginning.
SPLIT = "split"


def retention(candidate: Candidate, facts: Facts) -> float:
    """Return the share of the reference's label tokens kept with what comes before them, 0..1.

    The user's own splitting at their own length is the reference and keeps all of it.
    """
    whole = facts.reference.labels(facts.lengths)
    if whole == 0 or (facts.reference.splits and packs_as_user(candidate, facts)):
        return 1.0
    return min(1.0, facts.kept(*_rows_of(candidate))[0] / whole)


def earned_ratio(candidate: Candidate, facts: Facts) -> float:
    """Return the share of the reference's label tokens that counts towards the objective, 0..1.

    That is `retention`; with ``--allow split`` tokens count without what comes before them.
    """
    return 1.0 if _accepted(candidate, facts) else retention(candidate, facts)


def useful_tokens_ratio(candidate: Candidate, facts: Facts) -> float:
    """Return the share of the tokens a candidate trains that are useful, 0..1.

    Those beyond the reference earn nothing, nor do those without what comes before them.
    """
    if facts.reference.splits and packs_as_user(candidate, facts):
        return 1.0
    length, packing = _rows_of(candidate)
    if _accepted(candidate, facts):
        length, packing = None, "none"  # a piece is as good as the whole
    return useful_ratio(facts.lengths, length, packing, facts.reference, shards=facts.shards)


def documents_of(candidate: Candidate, facts: Facts) -> Documents:
    """Return how many documents a candidate trains whole, cut and split."""
    return facts.kept(*_rows_of(candidate))[1]


def splits_needlessly(candidate: Candidate, facts: Facts) -> bool:
    """Whether documents are split that the reference shows whole, beyond what the user accepts.

    Below the user's own length always; without one, where less than ``--min-retention`` keeps what
    comes before it. Their own way of splitting is no change. That joined rows (``wrapped``) also
    end inside shorter documents is part of the mixing they need another word for.
    """
    length, packing = _rows_of(candidate)
    if length is None or packing not in SPLITTING or packs_as_user(candidate, facts):
        return False
    kept, found = facts.kept(length, "bfd_split")
    if not found.split:
        return False
    if facts.job.options.get("max_length") is not None and length < facts.reference.length:
        return True
    return kept < facts.job.min_retention_ratio * facts.reference.labels(facts.lengths)


def packs_as_user(candidate: Candidate, facts: Facts) -> bool:
    """Whether rows are put together as in the user's own config, at their own length."""
    own = str(facts.option("packing_strategy")) if facts.option("packing") else "none"
    length, packing = _rows_of(candidate)
    return packing == own and length == facts.option("max_length")


def _accepted(candidate: Candidate, facts: Facts) -> bool:
    return SPLIT in facts.job.allow and candidate.get("packing") in SPLITTING


def _rows_of(candidate: Candidate) -> tuple[int | None, str]:
    """Return a candidate's ``max_length`` and packing strategy."""
    length = candidate.get("max_length")
    return None if length is None else int(length), str(candidate.get("packing", "none"))
