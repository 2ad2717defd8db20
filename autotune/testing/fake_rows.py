"""What TRL would make of a made-up request: its rows, its micro-batches' shapes, its refusals.

Arithmetic on lengths, for every offline trainer; costs are in fake_machine.py.
"""

from __future__ import annotations

import numpy as np

from autotune.core.job import Trainer
from autotune.core.lengths import Lengths
from autotune.core.outcome import Phase
from autotune.core.packing import pack
from autotune.probe.child.batches import BatchFacts, RowFacts
from autotune.probe.protocol import ProbeSpec
from autotune.testing.fake_machine import Shape
from autotune.testing.fake_script import Raises

#: TRL's default (trl 1.16), of every offline trainer.
MAX_LENGTH = 1024
#: Trainers whose collator lays both sides of a pair into one batch.
_PAIRS = (Trainer.DPO, Trainer.REWARD)


def made_rows(spec: ProbeSpec, lengths: Lengths) -> RowFacts:
    """Return what the trainer would prepare from the rows of a request.

    Args:
        spec: the request.
        lengths: the prepared rows, uncut.
    """
    return _packed(spec, lengths) if spec.options.get("packing") else _whole(spec, lengths)


def _packed(spec: ProbeSpec, lengths: Lengths) -> RowFacts:
    block = np.asarray(spec.plan.block, dtype=np.int64)
    length = int(spec.options.get("max_length", MAX_LENGTH) or 1)
    packed = pack(lengths.tokens[block], length, str(spec.options.get("packing_strategy", "bfd")))
    share = lengths.labels.sum() / max(1, int(lengths.tokens.sum()))
    return RowFacts(
        tokens=packed.totals,
        labels=np.maximum((packed.totals * share).astype(np.int64) - packed.sequences, 0),
        sequences=packed.sequences,
        longest=np.minimum(packed.totals, lengths.longest),
        source=np.full(len(packed), -1, dtype=np.int64),
    )


def _whole(spec: ProbeSpec, lengths: Lengths) -> RowFacts:
    length = spec.options.get("max_length", MAX_LENGTH)
    cut = spec.pretruncate_tokens or (None if length is None else int(length))
    kept = lengths.kept_rows(cut)
    wanted = sorted({*spec.plan.paired, *(row for rows in spec.plan.worst for row in rows)})
    rows = np.asarray([row for row in wanted if kept[row]], dtype=np.int64)
    tokens = lengths.cut(cut)[rows]
    # The first token of an SFT row is never predicted, so a label there is not trained on.
    first = spec.trainer is Trainer.SFT and lengths.first_labels is None
    prompts = lengths.first_labels if spec.trainer is Trainer.KTO else None
    return RowFacts(
        tokens=tokens,
        labels=np.maximum(lengths.labels_within(cut)[rows] - int(first), 0),
        sequences=np.ones_like(tokens),
        longest=tokens,
        source=rows,
        both_sides=lengths.both_sides(cut)[rows] if spec.trainer in _PAIRS else None,
        prompts=None if prompts is None else np.minimum(prompts[rows], tokens),
    )


def made_shape(spec: ProbeSpec, batch: BatchFacts) -> Shape:
    """Return the tensor the collator would make of a micro-batch.

    Args:
        spec: the request.
        batch: the micro-batch.
    """
    multiple = int(spec.options.get("pad_to_multiple_of") or 1)
    sides = 2 if spec.trainer in _PAIRS else 1
    rows, width = sides * len(batch.rows), batch.longest
    if flattens(spec):
        rows, width = 1, batch.useful_tokens
    elif spec.options.get("packing"):
        width = int(spec.options.get("max_length", MAX_LENGTH))
    return Shape(rows, -(-width // multiple) * multiple)


def flattens(spec: ProbeSpec) -> bool:
    """Whether TRL's collator makes one row of a batch: asked for, or forced by bfd; SFT only."""
    if spec.trainer is not Trainer.SFT:
        return False
    packed = bool(spec.options.get("packing", False))
    strategy = spec.options.get("packing_strategy", "bfd")
    return bool(spec.options.get("padding_free", False)) or (
        packed and strategy in ("bfd", "bfd_split")
    )


def refusal_of(spec: ProbeSpec) -> Raises | None:
    """Return TRL's refusal of the request, in its words (trl 1.16, ``SFTTrainer.__init__``)."""
    if spec.trainer is not Trainer.SFT:
        return None
    options = spec.options
    packing = bool(options.get("packing", False))
    length = options.get("max_length", MAX_LENGTH)
    kwargs = options.get("gradient_checkpointing_kwargs") or {}
    if packing and length is None:
        words = "When packing is enabled, `max_length` can't be `None`."
    elif options.get("padding_free") and not packing and length is not None:
        words = (
            "When `padding_free=True` without packing, `max_length` is not enforced. Either enable "
            "packing (e.g., `packing=True, packing_strategy='bfd'`), provide already truncated "
            "inputs, or set `max_length=None`."
        )
    elif kwargs.get("selective") and not options.get("gradient_checkpointing", True):
        words = (
            "`gradient_checkpointing_kwargs={'selective': True}` requires "
            "`gradient_checkpointing=True`."
        )
    else:
        return None
    return Raises("builtins.ValueError", words, Phase.LOAD)
