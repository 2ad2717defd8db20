"""The first candidates of a search, before anything is known: few, cheap to explain, spread out."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.candidate import Candidate
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical


def first_candidates(
    candidates: Sequence[Candidate], own: Candidate, facts: Facts
) -> list[Candidate]:
    """Return the candidates every search starts with, in order, those that are valid.

    Each turns one lever of the user's own config as far as it goes, so that the sampler has seen
    every lever once: no checkpointing, a smaller batch, padding-free, packing; then the smallest.

    Args:
        candidates: the valid candidates.
        own: the user's own config.
        facts: job, rows and machine.
    """
    known = {c.key: c for c in candidates}
    batch = int(own.get("per_device_train_batch_size") or 1)
    wanted: list[dict[str, object]] = [
        {"gradient_checkpointing": "none"},
        {"per_device_train_batch_size": 1, "gradient_checkpointing": "none"},
        {
            "per_device_train_batch_size": max(1, batch // 4),
            "gradient_checkpointing": "none",
            "padding_free": True,
            "packing": "none",
        },
    ]
    found: list[Candidate] = []
    for changes in wanted:
        candidate = canonical(own.with_knobs(**changes), facts)  # type: ignore[arg-type]
        if candidate.key in known and candidate not in found and candidate != own:
            found.append(known[candidate.key])
    packed = [c for c in candidates if c.get("packing") == "bfd"]
    if packed:
        best = min(packed, key=lambda c: _packed_order(c, facts))
        if best not in found:
            found.append(best)
    return found


def cheapest(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate that should need least memory: smallest batch, shortest, all savers on.

    Nothing is pruned by this order; it only says where to look first when the baseline does not
    fit, so that "nothing fits" is found out early.
    """

    def order(candidate: Candidate) -> tuple[int, int, int, int]:
        savers = ("full", "reentrant", "selective", "none")
        checkpointing = str(candidate.get("gradient_checkpointing", "none"))
        return (
            int(candidate.get("per_device_train_batch_size") or 1),
            int(candidate.get("max_length") or 0),
            savers.index(checkpointing),
            0 if candidate.get("activation_offloading") else 1,
        )

    return min(candidates, key=order, default=None)


def _packed_order(candidate: Candidate, facts: Facts) -> tuple[int, int, int]:
    return (
        0 if candidate.get("gradient_checkpointing") == "none" else 1,
        int(candidate.get("per_device_train_batch_size") or 1),
        abs(int(candidate.get("max_length") or 0) - facts.lengths.longest),
    )
