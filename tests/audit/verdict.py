"""Decides whether TRL did what the rules said it would; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.core.candidate import Value
from tests.audit.trl_run import Done

Claim = Literal["accepted", "rejected", "merged", "policy", "unjudged"]

#: Peaks of live bytes of two runs that did the same are this close: what DESIGN.md asks of repeats.
SAME_PEAK_RATIO = 0.001
#: Losses and gradient norms of two runs that compute the same, relative, as DESIGN.md 5.7 has it.
SAME_LOSS_RATIO = {"float32": 1e-5, "bfloat16": 5e-4, "float16": 5e-4}
SAME_NORM_RATIO = {"float32": 1e-4, "bfloat16": 1e-2, "float16": 1e-2}


@dataclass(frozen=True)
class Tried:
    """One combination: what the rules claimed and what TRL did.

    Args:
        claim: ``accepted``, ``rejected`` by a rule about TRL, ``merged`` into another candidate
            that is said to do the same, left aside by a ``policy`` of autotune's own, or
            ``unjudged`` where a CPU cannot tell.
        rule: the rules or the merge it is about; empty for an accepted one.
        choices: what it is about: the smallest faulty assignment, what meets in a merge, or all.
        agrees: whether TRL bears the claim out.
        found: what TRL did, in words.
    """

    claim: Claim
    rule: str
    choices: tuple[tuple[str, Value], ...]
    agrees: bool
    found: str


def trained(done: Done) -> tuple[bool, str]:
    """Say whether a run trained, and how it ended."""
    return done.ending == "trains", ended(done)


def stopped(
    done: Done, about: Iterable[str], without: Iterable[Done], dtype: str
) -> tuple[bool, str]:
    """Say whether TRL raised, did what a valid candidate does, or warned as those do not.

    Args:
        done: the run with the choice.
        about: the knobs of the faulty assignment.
        without: runs of valid candidates, the likeliest first; asked for one by one.
        dtype: precision of the weights.
    """
    if done.ending != "trains":
        return True, ended(done)
    seen: set[str] = set()
    for other in without:
        if other.ending == "trains" and not difference(done, other, dtype):
            return True, "trains, and does what a valid candidate does"
        seen |= set(other.warnings)
    warned = warning_about(about, (w for w in done.warnings if w not in seen))
    return bool(warned), f"trains and warns: {warned}" if warned else "trains"


def alike(done: Done, into: Done, dtype: str, straightened: Done | None) -> tuple[bool, str]:
    """Say whether a combination does what the one does that stands for it.

    Args:
        done: the combination as it is written.
        into: the candidate that stands for it.
        dtype: precision of the weights.
        straightened: the combination with what TRL refuses about its spelling put right; None
            where there is nothing to put right.
    """
    if into.ending != "trains":
        return False, f"what stands for it {ended(into)}"
    if done.ending == "trains":
        differs = difference(done, into, dtype)
        return not differs, differs or "does the same"
    if straightened is not None and straightened.ending == "trains":
        differs = difference(straightened, into, dtype)
        words = differs or "does the same"
        return (
            not differs,
            f"{words} once what TRL refuses is put right; as written it {ended(done)}",
        )
    # TRL refuses what is never written: nothing is lost by searching the other.
    return True, f"is never written: it {ended(done)}"


def difference(one: Done, other: Done, dtype: str) -> str:
    """Return how two runs that trained differ, in words; empty when they did the same."""
    if one.batches != other.batches:
        mine, theirs = one.batches[0], other.batches[0]
        return f"batches are {_words(mine)}, not {_words(theirs)}"
    x, y = one.peak_bytes, other.peak_bytes
    if x is None or y is None or not math.isclose(x, y, rel_tol=SAME_PEAK_RATIO):
        return f"its peak is {x} instead of {y} bytes"
    if not _close(one.losses, other.losses, SAME_LOSS_RATIO[dtype]):
        return f"its losses are {one.losses} instead of {other.losses}"
    if not _close(one.grad_norms, other.grad_norms, SAME_NORM_RATIO[dtype]):
        return f"its gradient norms are {one.grad_norms} instead of {other.grad_norms}"
    return ""


def ended(done: Done) -> str:
    """Return how a run ended, in words."""
    if done.ending == "trains":
        return "trains"
    verb = "is refused" if done.ending == "refused" else "breaks in training"
    return f"{verb}: {' '.join(done.said.split())}"


def _words(batch: object) -> str:
    return str(batch).replace("=", " ")


def _close(ones: Sequence[float], others: Sequence[float], ratio: float) -> bool:
    if len(ones) != len(others):
        return False
    return all(math.isclose(a, b, rel_tol=ratio) for a, b in zip(ones, others, strict=True))


def warning_about(knobs: Iterable[str], warnings: Iterable[str]) -> str:
    """Return the first warning that names one of the knobs, its first line."""
    names = tuple(knobs)
    return next((w.splitlines()[0] for w in warnings if any(n in w for n in names)), "")
