"""What TRL's collator really made of a micro-batch, read from the batch itself.

Reads tensors; plans nothing. What a batch cannot tell (documents flattened into one row carry no
mask) is taken from the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.probe.child.batches import BatchFacts
from autotune.probe.child.first_uses import Shape, shapes_of


@dataclass(frozen=True)
class Realised:
    """One micro-batch as the model gets it.

    Args:
        rows: rows of ``input_ids``; pairs make two, KTO's mismatched sequences are not in it.
        width: its columns.
        useful_tokens: tokens that are not padding.
        label_tokens: tokens that are trained on; of Reward, which scores whole sides, all of them.
        shapes: of everything the model reads.
    """

    rows: int
    width: int
    useful_tokens: int
    label_tokens: int
    shapes: frozenset[Shape]


def realised(inputs: Mapping[str, Any], planned: BatchFacts) -> Realised:
    """Return what a collated micro-batch holds.

    Args:
        inputs: the collated batch: ``input_ids`` (rows, width) and, by trainer,
            ``attention_mask``, ``labels`` and ``completion_mask`` of the same shape.
        planned: the rows it was made of.
    """
    rows, width = (int(n) for n in inputs["input_ids"].shape)
    mask = inputs.get("attention_mask")
    useful = planned.useful_tokens if mask is None else int(mask.sum())
    # the first token of a row is never predicted
    if "completion_mask" in inputs:
        labels = int(inputs["completion_mask"][:, 1:].sum())
    elif "labels" in inputs:
        labels = int((inputs["labels"][:, 1:] != -100).sum())
    else:
        labels = useful
    return Realised(rows, width, useful, labels, shapes_of(inputs))
