"""Turns a candidate into the request a probe gets: options, rows and cap."""

from __future__ import annotations

from autotune.core.candidate import Candidate
from autotune.core.job import Budget
from autotune.core.rows import packing_block, paired_rows, worst_rows
from autotune.knobs.facts import Facts
from autotune.knobs.translate import Settings
from autotune.probe.protocol import ProbeSpec, RowPlan


def probe_spec(
    candidate: Candidate,
    settings: Settings,
    facts: Facts,
    model_dir: str,
    rows_dir: str,
    budget: Budget,
) -> ProbeSpec:
    """Return the request for one candidate.

    Args:
        candidate: what is measured.
        settings: what it means to TRL.
        facts: job, rows and machine.
        model_dir: local directory probes build the model from.
        rows_dir: folder of the prepared rows.
        budget: memory the job may use; probes run under its usable part.
    """
    job = facts.job
    return ProbeSpec(
        trainer=job.trainer,
        model_dir=model_dir,
        weights=job.weights,
        options={**job.options, **settings.options},
        device=facts.device.label,
        rows_dir=rows_dir,
        plan=row_plan(candidate, facts),
        pretruncate_tokens=settings.pretruncate_tokens,
        cap_bytes=budget.usable_bytes,
        device_total_bytes=facts.device.total_bytes,
    )


def row_plan(candidate: Candidate, facts: Facts) -> RowPlan:
    """Return the rows a candidate is measured on; only the seed and the data decide them."""
    if candidate.get("packing", "none") != "none":
        block = packing_block(facts.lengths, seed=facts.job.seed)
        return RowPlan(worst=(), paired=(), block=tuple(block))
    length = candidate.get("max_length")
    worst = worst_rows(
        facts.lengths,
        batch=int(candidate.get("per_device_train_batch_size") or 1),
        max_length=None if length is None else int(length),
    )
    return RowPlan(
        worst=tuple(tuple(rows) for rows in worst),
        paired=tuple(paired_rows(facts.lengths, seed=facts.job.seed)),
        block=(),
    )
