"""Turns a candidate into the request a probe gets: options, rows and cap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.job import Budget, Trainer
from autotune.core.lengths import Lengths
from autotune.core.packing import BLOCK_ROWS
from autotune.core.rows import packing_block, paired_rows, worst_rows
from autotune.knobs.facts import Facts
from autotune.knobs.translate import Settings
from autotune.probe.protocol import ProbeSpec, RowPlan, Verification


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
        env=settings.env,
        device=facts.device.label,
        device_uuid=facts.device.visible_uuid,
        rows_dir=rows_dir,
        plan=row_plan(candidate, facts),
        pretruncate_tokens=settings.pretruncate_tokens,
        cap_bytes=budget.usable_bytes,
        budget_bytes=budget.total_bytes,
        device_total_bytes=facts.device.total_bytes,
    )


def row_plan(candidate: Candidate, facts: Facts) -> RowPlan:
    """Return the rows a candidate is measured on; only the seed and the data decide them."""
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    packing = candidate.get("packing", "none")
    if packing != "none":
        block = packing_block(facts.lengths, seed=facts.job.seed)
        rows = facts.packed_rows(int(candidate.get("max_length") or 1), str(packing))
        return RowPlan(worst=(), paired=(), block=tuple(block), batch=min(batch, max(1, rows)))
    length = candidate.get("max_length")
    worst = worst_rows(
        facts.lengths,
        batch=batch,
        max_length=None if length is None else int(length),
        mismatched=facts.job.trainer is Trainer.KTO,
    )
    return RowPlan(
        worst=tuple(tuple(rows) for rows in worst),
        paired=tuple(paired_rows(facts.lengths, seed=facts.job.seed)),
        block=(),
        batch=min(batch, len(facts.lengths)),
    )


@dataclass(frozen=True)
class EvalRows:
    """The prepared rows the user's config evaluates on.

    Args:
        rows_dir: their folder.
        lengths: their token lengths.
    """

    rows_dir: str
    lengths: Lengths


def verification(
    settings: Settings, facts: Facts, eval_rows: EvalRows | None, eval_batch: int
) -> Verification:
    """Return what the longer look at a candidate does: what the user's own run will do.

    Args:
        settings: what the candidate means to TRL.
        facts: job, rows and machine.
        eval_rows: rows evaluation uses; None when the config does not evaluate.
        eval_batch: ``per_device_eval_batch_size``.
    """
    longest: tuple[int, ...] = ()
    if eval_rows is not None:
        order = np.argsort(-eval_rows.lengths.tokens, kind="stable")
        # Packed evaluation needs enough documents for whole batches of full rows.
        packs = facts.option("eval_packing")
        packs = settings.options.get("packing", facts.option("packing")) if packs is None else packs
        longest = tuple(int(row) for row in order[: BLOCK_ROWS if packs else 2 * eval_batch])
    return Verification(
        save=str(facts.option("save_strategy")) != "no",
        eval_rows_dir=None if eval_rows is None else eval_rows.rows_dir,
        eval_rows=longest,
        eval_pretruncate_tokens=settings.pretruncate_tokens,
    )
