"""Plans the comparison of a chosen candidate with its reference, and words what came of it.

DESIGN.md 5.7. A comparison means something only where both train the same tokens of the same
model; where they cannot, that is said instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.kept import SPLITTING
from autotune.core.lengths import IntArray, Lengths
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Outcome
from autotune.core.result import TrialRecord
from autotune.core.rows import paired_rows
from autotune.knobs.facts import Facts
from autotune.knobs.retention import SPLIT
from autotune.probe.equivalence import TOLERANCES, difference_ratio
from autotune.probe.protocol import GuardSide, GuardSpec

_CHANGED = {
    "mixing": "documents see each other under one of them",
    "model": "one of them changes the model that is trained",
}


def guard_of(trials: Sequence[TrialRecord], trial: TrialRecord | None) -> TrialRecord | None:
    """Return the last comparison of a trial's candidate; None when there is none."""
    if trial is None:
        return None
    mine = (t for t in reversed(trials) if t.candidate.key == trial.candidate.key)
    return next((t for t in mine if t.role == "guard"), None)


def differs(report: ProbeReport) -> bool:
    """Whether a comparison showed that a candidate trains something else than its reference.

    One that did not come to an end, or whose reference's own loss is not finite, shows nothing.
    """
    return report.compared is not None and report.ending.outcome is Outcome.INVALID


def not_comparable(chosen: TrialRecord, against: TrialRecord, facts: Facts) -> str:
    """Return why one update of the two would not train the same tokens; empty when it would.

    Args:
        chosen: the candidate that would be emitted.
        against: its reference.
        facts: job, rows and machine.
    """
    for trial in (chosen, against):
        if trial.changes in _CHANGED:
            return _CHANGED[trial.changes]
    if not _eligible(chosen.candidate, against.candidate, facts).size:
        return "no row is short enough to be whole under both"
    return ""


def guard_spec(
    chosen: TrialRecord,
    against: TrialRecord,
    facts: Facts,
    *,
    model_dir: str,
    rows_dir: str,
    weights: Literal["random", "real"],
) -> GuardSpec:
    """Return the comparison of two comparable candidates.

    Args:
        chosen: the candidate that would be emitted.
        against: its reference.
        facts: job, rows and machine.
        model_dir: local directory with the model's config and tokenizer.
        rows_dir: folder of the prepared rows.
        weights: ``real`` when they are at hand.
    """

    def side(trial: TrialRecord) -> GuardSide:
        options = {**facts.job.options, **trial.options}
        return GuardSide(options=options, pretruncate_tokens=trial.pretruncate_tokens)

    return GuardSpec(
        trainer=facts.job.trainer,
        model_dir=model_dir,
        weights=weights,
        device=facts.device.label,
        device_uuid=facts.device.visible_uuid,
        rows_dir=rows_dir,
        rows=update_rows(chosen.candidate, against.candidate, facts),
        reference=side(against),
        candidate=side(chosen),
        seed=facts.job.seed,
    )


def update_rows(chosen: Candidate, against: Candidate, facts: Facts) -> tuple[int, ...]:
    """Return the rows of one update: as many as the effective batch, in whole micro-batches.

    A partly filled micro-batch weighs as much as a full one where a trainer averages per
    micro-batch (DPO, Reward), so unpacked candidates get a common multiple of their batches; rows
    repeat where there are too few. They come from the stratified sample every candidate is timed
    on, as far as those are eligible.

    Args:
        chosen: the candidate that would be emitted.
        against: its reference.
        facts: job, rows and machine.
    """
    unpacked = [c for c in (chosen, against) if c.get("packing", "none") == "none"]
    unit = math.lcm(*(int(c.get("per_device_train_batch_size") or 1) for c in unpacked))
    count = unit * max(1, round(facts.effective_batch / unit))
    eligible = _eligible(chosen, against, facts)
    sample = np.asarray(paired_rows(facts.lengths, seed=facts.job.seed), dtype=np.int64)
    rows = np.asarray([*sample[np.isin(sample, eligible)], *eligible[:count]], dtype=np.int64)
    limits = [_limit(c, facts.lengths) for c in (chosen, against)]
    apart = (facts.lengths.tokens[rows] > min(limits)) & (limits[0] != limits[1])
    # where rows that one of them cuts or splits are compared at all, they are half of the update
    rows = np.concatenate((rows[apart][: max(1, count // 2)], rows[~apart], rows[apart]))
    return tuple(int(row) for row in np.resize(list(dict.fromkeys(rows)), count))


def _eligible(chosen: Candidate, against: Candidate, facts: Facts) -> IntArray:
    """Return the rows both candidates have to train the same tokens of.

    Unpacked rows cut at one length are equal; otherwise rows that neither cuts or splits are, and
    the longer ones may differ as far as the user accepts to lose them. Where they hold more than
    that, they are compared too, up to where the reference trains them whole: whatever let such a
    candidate through, the comparison then fails.
    """
    lengths = facts.lengths
    limits = [_limit(c, lengths) for c in (chosen, against)]
    packed = any(c.get("packing", "none") != "none" for c in (chosen, against))
    whole = min(limits)
    least = facts.job.min_retention_ratio * lengths.labels_kept(limits[1])
    accepted = SPLIT in facts.job.allow and chosen.get("packing") in SPLITTING
    if lengths.labels_kept(whole) < least and not accepted:
        whole = limits[1]
    kept = lengths.kept_rows(whole)
    if packed or limits[0] != limits[1]:
        kept = kept & (lengths.tokens <= whole)
    return np.flatnonzero(kept)


def _longest(chosen: TrialRecord, against: TrialRecord, facts: Facts) -> int:
    """Return the tokens of the longest row that is compared, as the reference trains it."""
    rows = list(update_rows(chosen.candidate, against.candidate, facts))
    return int(facts.lengths.cut(_limit(against.candidate, facts.lengths))[rows].max())


def _limit(candidate: Candidate, lengths: Lengths) -> int:
    value = candidate.get("max_length")
    return lengths.longest if value is None else min(int(value), lengths.longest)


def words(
    chosen: TrialRecord | None,
    against: TrialRecord | None,
    trials: Sequence[TrialRecord],
    facts: Facts,
) -> str:
    """Return what a reader should know of the comparison; empty when there is nothing to compare.

    Args:
        chosen: the candidate that is emitted.
        against: its reference.
        trials: every probe so far.
        facts: job, rows and machine.
    """
    if chosen is None or against is None or chosen.candidate.key == against.candidate.key:
        return ""
    why_not = not_comparable(chosen, against, facts)
    if why_not:
        return f"not compared with the reference update by update: {why_not}"
    record = guard_of(trials, chosen)
    if record is None:
        return ""
    compared = record.report.compared
    if compared is None or record.report.ending.outcome is Outcome.NON_FINITE:
        return f"NOT compared with the reference update by update: {record.report.ending.reason}"
    mine, theirs = compared.candidate, compared.reference
    loss, norm = TOLERANCES[mine.precision]
    kind = "real" if compared.weights == "real" else "seeded random"
    return (
        f"trains what the reference trains: one update on the same {mine.label_tokens:,} label "
        f"tokens, rows of up to {_longest(chosen, against, facts):,} tokens "
        f"({mine.micro_steps} against {theirs.micro_steps} micro-steps, {kind} weights, "
        f"dropout off) differs by {difference_ratio(mine.loss, theirs.loss):.1e} in the loss and "
        f"{difference_ratio(mine.grad_norm, theirs.grad_norm):.1e} in the gradient norm "
        f"(allowed in {mine.precision}: {loss:g} and {norm:g})"
    )
