"""Turns a candidate into the TRL options it stands for, the accumulation included.

Also brings a candidate into its canonical form: knobs without effect under the others are dropped
or set to the value that means the same, so that equal configurations are searched once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.core.candidate import Candidate
from autotune.knobs.catalog import knob, knobs_of
from autotune.knobs.facts import Facts

#: Largest relative deviation of sequences per update from the user's (DESIGN.md 5.4).
EFFECTIVE_BATCH_TOLERANCE = 0.10
#: Packing strategies that make the collator flatten, whatever ``padding_free`` says.
_FLATTENS = ("bfd", "bfd_split")
#: Options that count optimizer updates.
STEP_COUNTED = ("max_steps", "warmup_steps", "save_steps", "eval_steps", "logging_steps")


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

    Merged are: padding-free at batch 1 (nothing to flatten) and under packing (bfd forces it);
    bfd_split where no row overflows; pad multiples under flattening (they only append one-token
    documents); an unpacked ``max_length`` beyond the longest row.

    Args:
        candidate: any assignment of the trainer's knobs.
        facts: job, rows and machine.
    """
    knobs = dict(candidate.knobs)
    longest = facts.lengths.longest
    length = knobs.get("max_length")
    packing = knobs.get("packing", "none")
    if packing != "none":
        if packing in _FLATTENS:
            knobs.pop("padding_free", None)
        if packing in _FLATTENS or knobs.get("padding_free"):
            knobs.pop("pad_to_multiple_of", None)
        if packing == "bfd_split" and isinstance(length, int) and length >= longest:
            knobs["packing"] = "bfd"
    else:
        if length is None or (isinstance(length, int) and length > longest):
            knobs["max_length"] = _whole_rows(facts)
        if knobs.get("per_device_train_batch_size") == 1 and knobs.get("padding_free"):
            knobs["padding_free"] = False
        if knobs.get("padding_free"):
            knobs.pop("pad_to_multiple_of", None)
    return Candidate(knobs=knobs)


def _whole_rows(facts: Facts) -> int:
    """Return the ``max_length`` written for rows that are not cut: the user's when it is enough."""
    explicit = facts.option("max_length")
    longest = facts.lengths.longest
    if explicit is not None and int(explicit) >= longest:
        return int(explicit)
    return longest


def settings(candidate: Candidate, facts: Facts) -> Settings:
    """Return what a candidate means to TRL.

    Args:
        candidate: a canonical candidate.
        facts: job, rows and machine.
    """
    options: dict[str, Any] = {}
    for row in knobs_of(facts.job.trainer):
        if row.name in candidate.knobs:
            options.update(knob(row.name).write(candidate.knobs[row.name], facts))
    packing = str(candidate.get("packing", "none"))
    length = candidate.get("max_length")
    pretruncate = None
    if packing == "none" and candidate.get("padding_free"):
        # TRL does not cut rows when it flattens, and refuses a max_length it would not enforce.
        options["max_length"] = None
        if isinstance(length, int) and length < facts.lengths.longest:
            pretruncate = length
    if packing in _FLATTENS:
        options["padding_free"] = False  # TRL's collator flattens by itself
        options["pad_to_multiple_of"] = None
    if candidate.get("padding_free"):
        options["pad_to_multiple_of"] = None
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    per_row = 1.0
    if packing != "none" and isinstance(length, int):
        per_row = facts.sequences_per_row(length, packing)
    accumulation = max(1, round(facts.effective_batch / (batch * per_row)))
    options["gradient_accumulation_steps"] = accumulation
    sequences = batch * accumulation * per_row
    options.update(_same_samples(sequences, facts))
    changed = {k: v for k, v in options.items() if _differs(k, v, facts) or k == "max_length"}
    return Settings(
        options=changed,
        env={},
        pretruncate_tokens=pretruncate,
        accumulation=accumulation,
        sequences_per_update=sequences,
    )


def _same_samples(sequences: float, facts: Facts) -> dict[str, Any]:
    """Re-derive the user's step-counted settings to the same number of samples (DESIGN.md 5.4).

    Values below 1 are shares of the run and stay; so do values the user left to TRL.
    """
    factor = facts.own_batch / sequences
    found: dict[str, Any] = {}
    for name in STEP_COUNTED:
        value = facts.job.options.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1:
            scaled = max(1, round(value * factor))
            if scaled != value:
                found[name] = scaled
    return {**found, **_save_with_eval(found, facts)}


def _save_with_eval(found: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Keep saving a multiple of evaluating where the best model is to be found again.

    transformers refuses ``load_best_model_at_end`` otherwise (``TrainingArguments``).
    """
    eval_steps, save_steps = facts.option("eval_steps"), facts.option("save_steps")
    if "eval_steps" not in found and "save_steps" not in found:
        return {}
    if not facts.option("load_best_model_at_end") or not eval_steps or not save_steps:
        return {}
    times = max(1, round(save_steps / eval_steps))
    scaled = found.get("eval_steps", int(eval_steps))
    return {"eval_steps": scaled, "save_steps": times * scaled}


def _differs(name: str, value: Any, facts: Facts) -> bool:
    return name in facts.job.options or value != facts.defaults.get(name)
