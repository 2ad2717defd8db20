"""The micro-batches of one whole pass: how many sequences each holds and how wide it is padded.

Repeats the arithmetic of TRL's collator over a seeded sampler; it builds no batch and measures
nothing. The order is drawn with numpy, so single batches differ from a run's, totals hardly do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autotune.core.errors import BadInput
from autotune.core.lengths import IntArray, Lengths
from autotune.core.packing import STRATEGIES, pack

Packing = Literal["none", "bfd", "bfd_split", "wrapped"]

#: Batch sizes a profile states the padding of.
WASTE_BATCHES = (1, 2, 4, 8, 16, 32, 64)
#: Batches transformers sorts together when grouping by length, and the least it divides data into
#: (``get_length_grouped_indices``, transformers 5.24).
_GROUPED_BATCHES = 50
_LEAST_GROUPS = 4


@dataclass(frozen=True, eq=False)
class Shapes:
    """Hold the micro-batches of one pass, in sampled order.

    Args:
        rows: int64[m], sequences in every micro-batch (documents, when rows are packed; rows of
            preference data, each of which makes two tensor rows).
        width: int64[m], tokens per tensor row as padded; of the one flattened row where the
            collator is padding-free.
        padded_tokens: int64[m], tokens the model computes, padding included.
        useful_tokens: int64[m], tokens among them that are not padding.
    """

    rows: IntArray
    width: IntArray
    padded_tokens: IntArray
    useful_tokens: IntArray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tensor_rows(self) -> IntArray:
        """First dimension of every micro-batch: int64[m]; 1 where it is flattened."""
        return self.padded_tokens // np.maximum(self.width, 1)

    @property
    def padding_ratio(self) -> float:
        """Share of the computed tokens that is padding, 0..1."""
        padded = int(self.padded_tokens.sum())
        return 1.0 - int(self.useful_tokens.sum()) / padded if padded else 0.0


def shapes_of_pass(
    lengths: Lengths,
    *,
    batch: int,
    max_length: int | None,
    packing: str,
    padding_free: bool,
    pad_to_multiple_of: int | None,
    group_by_length: bool = False,
    accumulation: int = 1,
    shards: int = 1,
    seed: int,
) -> Shapes:
    """Return the micro-batches of one pass over the rows.

    Args:
        lengths: the rows, uncut; those held out for evaluation are not passed over.
        batch: ``per_device_train_batch_size``, rows (packed rows, when packing).
        max_length: cut in tokens, None for none; with ``padding_free`` and no packing, where TRL
            refuses a ``max_length``, what the rows were cut to beforehand.
        packing: ``none`` or TRL's ``packing_strategy``. bfd and bfd_split collate padding-free.
        padding_free: whether the collator flattens the batch into one row.
        pad_to_multiple_of: multiple the width is padded up to, None or 0 for none.
        group_by_length: whether the sampler puts rows of like length together.
        accumulation: micro-batches per update, which that sampler groups together.
        shards: TRL's ``dataset_num_proc``, see ``autotune.core.packing.pack``.
        seed: seed of the sampled order.

    Raises:
        BadInput: unknown packing strategy, packing without ``max_length``, or batch below 1.
    """
    if packing != "none" and packing not in STRATEGIES:
        raise BadInput(f"packing is {packing!r}, expected none, {', '.join(STRATEGIES)}.")
    if packing != "none" and max_length is None:
        raise BadInput("packing needs a max_length, found none.", "Set max_length.")
    if batch < 1:
        raise BadInput(f"per_device_train_batch_size is {batch}, expected at least 1.")
    lengths = lengths.trained
    if packing == "none" or max_length is None:
        kept = lengths.kept_rows(max_length)
        tokens, useful = lengths.cut(max_length)[kept], lengths.both_sides(max_length)[kept]
        sequences = np.ones_like(tokens)
    else:
        packed = pack(lengths.tokens, max_length, packing, shards=shards)
        tokens, sequences = packed.totals, packed.sequences
        useful = tokens if lengths.real is None else _share(tokens, lengths)
    if not len(tokens):
        return Shapes(tokens, tokens, tokens, tokens)
    rng = np.random.default_rng(seed)
    order = (
        _grouped_order(tokens, batch * accumulation, rng)
        if group_by_length
        else rng.permutation(len(tokens))
    )
    starts = np.arange(0, len(order), batch)
    rows = np.add.reduceat(sequences[order], starts)
    if padding_free or packing in ("bfd", "bfd_split"):
        width = _round_up(np.add.reduceat(tokens[order], starts), pad_to_multiple_of)
        padded = width
    else:
        width = _round_up(np.maximum.reduceat(tokens[order], starts), pad_to_multiple_of)
        # the two sides of preference rows are padded together (trl, DataCollatorForPreference)
        sides = 1 if lengths.rejected is None else 2
        padded = width * sides * np.diff(np.append(starts, len(order)))
    return Shapes(rows, width, padded, np.add.reduceat(useful[order], starts))


def padding_waste(
    lengths: Lengths,
    *,
    max_length: int | None,
    pad_to_multiple_of: int | None = None,
    batches: Iterable[int] = WASTE_BATCHES,
    seed: int = 0,
) -> dict[int, float]:
    """Return the share of computed tokens that is padding, 0..1, for every batch size, unpacked.

    Args:
        lengths: the rows, uncut.
        max_length: cut in tokens, None for none.
        pad_to_multiple_of: multiple the width is padded up to, None for none.
        batches: rows per micro-batch to state it for.
        seed: seed of the sampled order.
    """
    return {
        batch: shapes_of_pass(
            lengths,
            batch=batch,
            max_length=max_length,
            packing="none",
            padding_free=False,
            pad_to_multiple_of=pad_to_multiple_of,
            seed=seed,
        ).padding_ratio
        for batch in batches
    }


def _round_up(width: IntArray, multiple: int | None) -> IntArray:
    return width if not multiple else -(-width // multiple) * multiple


def _share(totals: IntArray, lengths: Lengths) -> IntArray:
    """Spread padding the rows brought with them evenly: which bin it fell into is not followed."""
    real = 0 if lengths.real is None else int(lengths.real.sum())
    return totals * real // max(int(lengths.tokens.sum()), 1)


def _grouped_order(tokens: IntArray, batch: int, rng: np.random.Generator) -> IntArray:
    """Order rows as transformers' ``get_length_grouped_indices``: sorted inside large groups."""
    multiple = min(len(tokens) // (batch * _LEAST_GROUPS), _GROUPED_BATCHES) or 1
    order = rng.permutation(len(tokens))
    group = np.arange(len(tokens)) // (multiple * batch)
    # lexsort is stable and takes its last key first: by group, then longest first
    order = order[np.lexsort((-tokens[order], group))]
    heads = np.arange(0, len(tokens), multiple * batch)
    longest = heads[int(tokens[order[heads]].argmax())]
    order[[0, longest]] = order[[longest, 0]]
    return order
