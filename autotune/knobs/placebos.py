"""Knobs that do nothing under the others: each is dropped, or set to the value that means the same.

`autotune.knobs.translate.canonical` applies them, so that equal configurations are searched once.
Every function changes a plain mapping of knobs; whether the result is valid is for the rules.
"""

from __future__ import annotations

import numpy as np

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME
from autotune.knobs.facts import Facts
from autotune.knobs.versions import canonical_choice

#: Packing strategies that make the collator flatten, whatever ``padding_free`` says.
FLATTENS = ("bfd", "bfd_split")
_Knobs = dict[str, Value]


def merge_rows(knobs: _Knobs, facts: Facts) -> None:
    """Merge ways of putting rows together that make the same batches."""
    longest = facts.lengths.longest
    length = knobs.get("max_length")
    packing = knobs.get("packing", "none")
    if facts.job.trainer is Trainer.DPO and knobs.get("padding_free"):
        knobs["padding_free"] = False
    if packing != "none":
        if packing in FLATTENS:
            knobs.pop("padding_free", None)
        if packing in FLATTENS or knobs.get("padding_free"):
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
    if facts.streams and "train_sampling_strategy" in knobs:
        knobs["train_sampling_strategy"] = _own("train_sampling_strategy", facts)


def merge_multiples(knobs: _Knobs, facts: Facts) -> None:
    """Replace a pad multiple by the smallest that pads every row alike.

    KTO also pads completions of other rows, whose lengths are not known here.
    """
    multiple = knobs.get("pad_to_multiple_of")
    length = knobs.get("max_length")
    if not isinstance(multiple, int) or facts.job.trainer is Trainer.KTO:
        return
    if knobs.get("packing", "none") != "none":
        # Wrapped rows are as long as packed, except the last.
        if not isinstance(length, int):
            return
        total = int(facts.lengths.tokens.sum())
        widths = np.unique([min(total, length), total % length or length])
    else:
        widths = facts.distinct_lengths
        widths = widths if length is None else np.minimum(widths, int(length))
    padded = -(-widths // multiple) * multiple
    known = BY_NAME["pad_to_multiple_of"].choices or ()
    smaller = [n for n in known if isinstance(n, int) and n < multiple]
    if np.array_equal(padded, widths):
        knobs["pad_to_multiple_of"] = None
        return
    for less in smaller:
        if np.array_equal(padded, -(-widths // less) * less):
            knobs["pad_to_multiple_of"] = less
            return


def merge_model(knobs: _Knobs, facts: Facts) -> None:
    """Merge two names of one model, and what there is nothing to apply to."""
    if knobs.get("peft", "none") == "none" and "peft" in knobs:
        knobs.pop("lora_r", None)
        knobs.pop("lora_target_modules", None)
    if "attn_implementation" in knobs:
        # null is the model's own choice; both names of it are the one the user has
        default = "eager" if "no-sdpa" in facts.traits else "sdpa"
        chosen = knobs["attn_implementation"] or default
        if chosen == default:
            own = _own("attn_implementation", facts)
            knobs["attn_implementation"] = own if own == default else None
        # Selective checkpointing keeps what is an op of torch's or a flash kernel's, and recomputes
        # everything in the others (trl/models/selective_activation_checkpointing.py).
        keeps = chosen == "sdpa" or "flash" in str(chosen)
        if knobs.get("gradient_checkpointing") == "selective" and not keeps:
            knobs["gradient_checkpointing"] = "full"
    if "loss_type" in knobs:
        knobs["loss_type"] = canonical_choice("loss_type", knobs["loss_type"], facts.versions)


def merge_device(knobs: _Knobs, facts: Facts) -> None:
    """On the CPU, drop what concerns a device's own memory only."""
    if facts.device.kind != "cpu":
        return
    if knobs.get("optim") == "paged_adamw_8bit":
        knobs["optim"] = "adamw_8bit"  # bitsandbytes: "Falling back to non-paged"
    if knobs.get("torch_empty_cache_steps") is not None:
        knobs["torch_empty_cache_steps"] = None
    if knobs.get("allocator", "default") != "default":
        knobs["allocator"] = "default"


def _own(name: str, facts: Facts) -> Value:
    return BY_NAME[name].read(facts)


def _whole_rows(facts: Facts) -> int:
    """Return the ``max_length`` written for rows that are not cut: the user's when it is enough."""
    explicit = facts.option("max_length")
    longest = facts.lengths.longest
    if explicit is not None and int(explicit) >= longest:
        return int(explicit)
    return longest
