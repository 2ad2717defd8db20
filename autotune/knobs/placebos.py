"""Knobs that do nothing under the others: each is dropped, or set to the value that means the same.

`autotune.knobs.translate.canonical` applies them, so that equal configurations are searched once,
and `autotune.knobs.no_effect` says which. Every function changes a plain mapping of knobs and notes
why; whether the result is valid is for the rules.
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


class Knobs(dict[str, Value]):
    """Choices by knob, and why those that were replaced did nothing.

    Args:
        choices: choice by knob name.
    """

    def __init__(self, choices: dict[str, Value]) -> None:
        super().__init__(choices)
        self.why: dict[str, str] = {}

    def without(self, name: str, why: str, neutral: tuple[Value, ...] = (None, False)) -> None:
        """Drop a knob; it did something before only where it is not neutral."""
        if name in self and self.pop(name) not in neutral:
            self.why[name] = why

    def become(self, name: str, value: Value, why: str) -> None:
        """Give a knob that is there the value that means the same."""
        if name in self and self[name] != value:
            self[name] = value
            self.why[name] = why


def merge_rows(knobs: Knobs, facts: Facts) -> None:
    """Merge ways of putting rows together that make the same batches."""
    longest = facts.lengths.longest
    length = knobs.get("max_length")
    packing = knobs.get("packing", "none")
    _merge_batch(knobs, facts)
    if facts.job.trainer is Trainer.DPO:
        knobs.become("padding_free", False, "trl dpo switches it off")
    if packing != "none":
        if packing in FLATTENS:
            knobs.without("padding_free", f"packing {packing} flattens whatever it says")
        if packing in FLATTENS or knobs.get("padding_free"):
            knobs.without("pad_to_multiple_of", _FLAT)
        if packing == "bfd_split" and isinstance(length, int) and length >= longest:
            knobs.become("packing", "bfd", "every row fits, so nothing is split: it is bfd")
    else:
        if length is None or (isinstance(length, int) and length > longest):
            knobs["max_length"] = _whole_rows(facts)
        if knobs.get("per_device_train_batch_size") == 1:
            knobs.become("padding_free", False, "a batch of one row has no padding")
        if knobs.get("padding_free"):
            knobs.without("pad_to_multiple_of", _FLAT)
    if facts.streams:
        own = _own("train_sampling_strategy", facts)
        knobs.become("train_sampling_strategy", own, "a stream is read in its own order")


def _merge_batch(knobs: Knobs, facts: Facts) -> None:
    """Make a micro-batch as large as it comes to be: none holds more rows than there are."""
    batch, length = knobs.get("per_device_train_batch_size"), knobs.get("max_length")
    length = length if isinstance(length, int) else None
    if facts.drops_last or not isinstance(batch, int):
        return  # one that is not full is left out
    rows = facts.rows_left(length, str(knobs.get("packing", "none")))
    if 0 < rows < batch:
        knobs["per_device_train_batch_size"] = rows


_FLAT = "a flattened batch has no padding; the pads would be documents of one token"


def merge_multiples(knobs: Knobs, facts: Facts) -> None:
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
        knobs.become("pad_to_multiple_of", None, "every row is as wide without it")
        return
    for less in smaller:
        if np.array_equal(padded, -(-widths // less) * less):
            knobs.become("pad_to_multiple_of", less, f"{less} pads every row alike")
            return


def merge_model(knobs: Knobs, facts: Facts) -> None:
    """Merge two names of one model, and what there is nothing to apply to."""
    if knobs.get("peft", "none") == "none" and "peft" in knobs:
        knobs.without("lora_r", "there are no adapters")
        knobs.without("lora_target_modules", "there are no adapters")
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
            why = f"{chosen} attention has no output it would keep: it is full"
            knobs.become("gradient_checkpointing", "full", why)
    if "loss_type" in knobs:
        newest = canonical_choice("loss_type", knobs["loss_type"], facts.versions)
        knobs.become("loss_type", newest, "since TRL 1.15 nll is computed that way")


#: Optimizers that page, and those they are where there is nothing to page out of.
UNPAGED = {"paged_adamw_8bit": "adamw_8bit"}


def merge_optimizer(knobs: Knobs, facts: Facts) -> None:
    """On the CPU, take the optimizer that bitsandbytes does: "Falling back to non-paged"."""
    plain = UNPAGED.get(str(knobs.get("optim")))
    if facts.device.kind == "cpu" and plain is not None:
        knobs.become("optim", plain, "a CPU has no memory of its own to page out of")


def merge_device(knobs: Knobs, facts: Facts) -> None:
    """On the CPU, drop what nothing looks at there: it concerns a device's own memory."""
    if facts.device.kind != "cpu":
        return
    why = "a CPU has no memory of its own"
    knobs.become("torch_empty_cache_steps", None, why)
    knobs.become("allocator", "default", why)


def users_own(name: str, choice: Value, facts: Facts) -> Value:
    """Return the user's choice where only a GPU would look at it, so that their file keeps it.

    Args:
        name: a knob.
        choice: its choice in a canonical candidate.
        facts: job, rows and machine.
    """
    own = _own(name, facts)
    here = Knobs({name: own})
    merge_device(here, facts)
    return own if here[name] == choice else choice


def _own(name: str, facts: Facts) -> Value:
    return BY_NAME[name].read(facts)


def _whole_rows(facts: Facts) -> int:
    """Return the ``max_length`` written for rows that are not cut: the user's when it is enough."""
    explicit = facts.option("max_length")
    longest = facts.lengths.longest
    if explicit is not None and int(explicit) >= longest:
        return int(explicit)
    return longest
