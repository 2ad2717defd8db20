"""Turns a candidate into the TRL options it stands for, the accumulation included.

Also brings a candidate into its canonical form. What is written are canonical names; the installed
versions' own are given by `autotune.knobs.versions.spelled` where a file leaves autotune.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.core.candidate import Candidate
from autotune.knobs.catalog import knobs_of
from autotune.knobs.facts import Facts
from autotune.knobs.placebos import (
    FLATTENS,
    Knobs,
    merge_device,
    merge_model,
    merge_multiples,
    merge_optimizer,
    merge_rows,
    users_own,
)

#: Largest relative deviation of sequences per update from the user's (DESIGN.md 5.4).
EFFECTIVE_BATCH_TOLERANCE = 0.10
#: Options that count optimizer updates.
STEP_COUNTED = (
    "max_steps",
    "warmup_steps",
    "save_steps",
    "eval_steps",
    "logging_steps",
    "ref_model_sync_steps",
)
#: Those of them that ``load_best_model_at_end`` binds to each other.
_TOGETHER = ("eval_steps", "save_steps", "logging_steps")


@dataclass(frozen=True)
class Settings:
    """What a candidate means to TRL.

    Args:
        options: TRL options that replace the user's.
        env: environment variables it needs.
        pretruncate_tokens: rows must be cut to this length before TRL sees them; None: not.
        accumulation: gradient accumulation steps.
        sequences_per_update: documents per optimizer update that result.
    """

    options: dict[str, Any]
    env: dict[str, str]
    pretruncate_tokens: int | None
    accumulation: int
    sequences_per_update: float


def canonical(candidate: Candidate, facts: Facts) -> Candidate:
    """Return the one form of all candidates that make TRL do the same.

    Merged are: padding-free at batch 1 (nothing to flatten), under packing (bfd forces it) and in
    DPO (TRL switches it off); bfd_split where no row overflows; pad multiples under flattening
    (they only append one-token documents) and those that pad no row further; an unpacked
    ``max_length`` beyond the longest row; adapters' knobs without adapters; two names of one
    attention or loss; selective checkpointing where there is nothing it would keep; on the CPU
    what concerns a device's memory only; the order of a stream.

    Args:
        candidate: any assignment of the trainer's knobs.
        facts: job, rows and machine.
    """
    return simplified(candidate, facts)[0]


def simplified(candidate: Candidate, facts: Facts) -> tuple[Candidate, dict[str, str]]:
    """Return the canonical form, and by knob why a choice that was replaced did nothing.

    Args: as for `canonical`.
    """
    knobs = Knobs(candidate.knobs)
    for merge in (merge_rows, merge_multiples, merge_model, merge_optimizer, merge_device):
        merge(knobs, facts)
    return Candidate(knobs=knobs), knobs.why


def settings(candidate: Candidate, facts: Facts) -> Settings:
    """Return what a candidate means to TRL.

    Args:
        candidate: a canonical candidate.
        facts: job, rows and machine.
    """
    options: dict[str, Any] = {}
    env: dict[str, str] = {}
    for row in knobs_of(facts.job.trainer):
        if row.name in candidate.knobs:
            written = row.write(users_own(row.name, candidate.knobs[row.name], facts), facts)
            if row.place == "environment":
                env.update(written)
            else:
                options = joined(options, written, facts)
    packing = str(candidate.get("packing", "none"))
    length = candidate.get("max_length")
    pretruncate = None
    if packing == "none" and candidate.get("padding_free"):
        # TRL does not cut rows when it flattens, and refuses a max_length it would not enforce.
        options["max_length"] = None
        if isinstance(length, int) and length < facts.lengths.longest:
            pretruncate = length
    if packing in FLATTENS:
        options["padding_free"] = False  # TRL's collator flattens by itself
        options["pad_to_multiple_of"] = None
    if candidate.get("padding_free"):
        options["pad_to_multiple_of"] = None
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    length = length if isinstance(length, int) else None
    per_row = facts.documents_per_row(length, packing)
    accumulation = _accumulation(batch, per_row, facts.rows_left(length, packing), facts)
    options["gradient_accumulation_steps"] = accumulation
    sequences = batch * accumulation * per_row
    if not facts.streams:
        sequences = min(sequences, facts.rows_left(length, packing) * per_row) or sequences
    options.update(_same_samples(sequences, facts))
    options.update(_same_scale(candidate, facts))
    changed = {k: v for k, v in options.items() if _differs(k, v, facts) or k == "max_length"}
    return Settings(
        options=changed,
        env=env,
        pretruncate_tokens=pretruncate,
        accumulation=accumulation,
        sequences_per_update=sequences,
    )


def _accumulation(batch: int, per_row: float, rows: int, facts: Facts) -> int:
    """Return the accumulation that holds the user's batch: all rows where it is all of them.

    Args:
        batch: rows of a micro-batch.
        per_row: documents of a row.
        rows: rows there are.
        facts: job, rows and machine.
    """
    if not facts.streams and facts.effective_batch >= rows * per_row * (1 - 1e-9):
        return max(1, -(-rows // batch))
    return max(1, round(facts.effective_batch / (batch * per_row)))


def joined(options: dict[str, Any], written: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Add what one more knob writes; several knobs may write into ``model_init_kwargs``.

    Each starts from the user's mapping, so what it adds and what it takes away is joined.
    """
    name = "model_init_kwargs"
    if name not in options or name not in written:
        return {**options, **written}
    theirs = set(facts.option(name) or {})
    before, now = dict(options[name] or {}), dict(written[name] or {})
    taken = (theirs - set(before)) | (theirs - set(now))
    both = {k: v for k, v in {**before, **now}.items() if k not in taken}
    return {**options, **written, name: both or None}


def _same_samples(sequences: float, facts: Facts) -> dict[str, Any]:
    """Re-derive the user's step-counted settings to the same number of samples (DESIGN.md 5.4).

    Values below 1 are shares of the run and stay; so do values the user left to TRL.
    """
    factor = facts.own_batch / sequences
    found: dict[str, Any] = {}
    for name in _counted(facts):
        value = facts.job.options.get(name)
        if _counts(value) and _scaled(value, factor) != value:
            found[name] = _scaled(value, factor)
    schedule = dict(facts.job.options.get("lr_scheduler_kwargs") or {})
    in_steps = {k: v for k, v in schedule.items() if k.endswith("_steps") and _counts(v)}
    scaled = {**schedule, **{k: _scaled(v, factor) for k, v in in_steps.items()}}
    if scaled != schedule:
        found["lr_scheduler_kwargs"] = scaled
    return {**found, **_save_with_eval(found, facts)}


def _counted(facts: Facts) -> tuple[str, ...]:
    """Return the options that count updates; a delay counts epochs unless evaluation does."""
    by_steps = str(facts.job.options.get("eval_strategy")) == "steps"
    return (*STEP_COUNTED, "eval_delay") if by_steps else STEP_COUNTED


def _counts(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1


def _scaled(value: Any, factor: float) -> int:
    scaled: int = max(1, round(value * factor))
    return scaled


def _save_with_eval(found: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Keep saving a multiple of evaluating where the best model is to be found again.

    transformers refuses ``load_best_model_at_end`` otherwise, and evaluates every
    ``logging_steps`` where nothing else is said (``TrainingArguments``).
    """
    if not facts.option("load_best_model_at_end") or not {*found} & {*_TOGETHER}:
        return {}
    now = {**{name: facts.option(name) for name in _TOGETHER}, **facts.job.options, **found}
    said = "eval_steps" in facts.job.options and now["eval_steps"]
    every, saved = now["eval_steps"] if said else now["logging_steps"], now["save_steps"]
    if not _counts(every) or not _counts(saved) or saved % every == 0:
        return {}
    return {"save_steps": max(1, round(saved / every)) * int(every)}


def _same_scale(candidate: Candidate, facts: Facts) -> dict[str, Any]:
    """Keep what adapters are scaled by, ``lora_alpha / lora_r``, when their rank changes.

    The rate the user chose then still fits. ``use_rslora`` divides by the root of the rank so that
    ``lora_alpha`` can stay.
    """
    alpha, own, rank = (facts.option("lora_alpha"), facts.option("lora_r"), candidate.get("lora_r"))
    if candidate.get("peft") not in ("lora", "dora") or not alpha or rank in (None, own):
        return {}
    return {"lora_alpha": max(1, round(alpha * int(rank) / own))}


def _differs(name: str, value: Any, facts: Facts) -> bool:
    return name in facts.job.options or value != facts.defaults.get(name)
