"""The lines of a plan about the rows: what they are, and what every length keeps of them."""

from __future__ import annotations

from autotune.core.candidate import Candidate, Value
from autotune.core.kept import SPLITTING
from autotune.core.kept_words import documents_words, reference_words
from autotune.core.units import show_ratio
from autotune.knobs.catalog import user_candidate
from autotune.knobs.retention import documents_of, retention
from autotune.use.planned import Plan


def rows_lines(plan: Plan) -> list[str]:
    """Return what rows there are and what the lengths that may be tried keep, a line each."""
    rows, facts = plan.prepared.profile, plan.facts
    quantiles = ", ".join(f"{float(k):.0%} {v}" for k, v in rows.quantiles.items())
    lines = [
        f"rows     {rows.rows_words}, layout {rows.layout}, "
        f"{rows.tokens:,} tokens; length quantiles {quantiles} "
        f"(longest is row {rows.longest_row + 1})",
        f"kept     {_reference(plan)}",
    ]
    tried = {_rows_of(candidate) for candidate in plan.space.candidates}
    for length in plan.space.choices.get("max_length", ()):
        for packing in _told_apart(length, tried):
            one = Candidate(knobs={"max_length": length, "packing": packing})
            named = f", packing {packing}," if packing in SPLITTING else ""
            lines.append(
                f"         max_length {length}{named} keeps {show_ratio(retention(one, facts))} of "
                f"the reference: {documents_words(documents_of(one, facts))}"
            )
    return lines


def _told_apart(length: Value, tried: set[tuple[Value, str]]) -> list[str]:
    """Return the packings tried at a length that do different things to documents."""
    packings = [p for p in ("none", "bfd", *SPLITTING) if (length, p) in tried]
    cuts = [p for p in packings if p not in SPLITTING]
    return [*cuts[:1], *(p for p in packings if p in SPLITTING)]


def _reference(plan: Plan) -> str:
    """Say what the shares are shares of, and what the user's own config keeps of it."""
    facts, own = plan.facts, user_candidate(plan.facts)
    share, found = retention(own, facts), documents_words(documents_of(own, facts))
    labels = f"label tokens {reference_words(facts.job, plan.prepared.profile)}"
    what = f"reference: the {labels}, each with all that comes before it"
    return f"{what}; your config keeps {show_ratio(share)} of them: {found}"


def _rows_of(candidate: Candidate) -> tuple[Value, str]:
    return candidate.get("max_length"), str(candidate.get("packing", "none"))
