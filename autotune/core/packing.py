"""What TRL's packing makes of rows, computed from their lengths alone.

Follows ``trl.pack_dataset`` (trl 1.16, ``data_utils.py``) block by block and bin by bin; the suite
holds it against TRL itself. It packs lengths, never tokens: probes pack with TRL's own function.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from autotune.core.errors import BadInput, nearest
from autotune.core.lengths import IntArray

Strategy = Literal["bfd", "bfd_split", "wrapped"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

#: Rows TRL packs together: the default batch of ``datasets.Dataset.map(batched=True)``.
BLOCK_ROWS = 1000

# An open bin is one integer, so that one sorted list finds the best fit: the space left in the high
# bits, then the moment it came to have that space (TRL takes the oldest first), then the bin.
_BIN_BITS = 32
_AGE_BITS = 32
_SPACE_SHIFT = _BIN_BITS + _AGE_BITS
_BIN_MASK = (1 << _BIN_BITS) - 1


@dataclass(frozen=True, eq=False)
class Packed:
    """Hold the rows that packing makes, in TRL's order.

    Args:
        totals: int64[r], tokens of every packed row.
        sequences: int64[r], sequences in it: pieces that keep apart for ``bfd`` and
            ``bfd_split``; for ``wrapped``, which joins them, documents that begin in it.
        max_length: tokens a row may hold.
        tokens_given: tokens before packing; the difference to ``tokens_kept`` was cut off.
    """

    totals: IntArray
    sequences: IntArray
    max_length: int
    tokens_given: int

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def tokens_kept(self) -> int:
        """Tokens that are still there."""
        return int(self.totals.sum())

    @property
    def fill_ratio(self) -> float:
        """Share of the rows' capacity that holds tokens, 0..1."""
        return self.tokens_kept / (len(self) * self.max_length) if len(self) else 0.0


def pack(tokens: IntArray, max_length: int, strategy: str, *, shards: int = 1) -> Packed:
    """Pack rows of the given lengths as ``trl.pack_dataset`` does.

    Args:
        tokens: int64[n], tokens per row in the order TRL packs them; empty rows vanish.
        max_length: tokens a packed row may hold, above 0.
        strategy: ``bfd`` (best fit decreasing, overflow cut off), ``bfd_split`` (overflow becomes
            rows of its own) or ``wrapped`` (joined and cut anywhere).
        shards: TRL's ``dataset_num_proc``: blocks never reach over the border of a shard.

    Raises:
        BadInput: unknown strategy, or ``max_length`` below 1.
    """
    if strategy not in STRATEGIES:
        raise BadInput(
            f"packing_strategy is {strategy!r}, expected one of {', '.join(STRATEGIES)}"
            f"{nearest(strategy, list(STRATEGIES))}."
        )
    if max_length < 1:
        raise BadInput(f"packing needs a max_length of at least 1, found {max_length}.")
    tokens = np.asarray(tokens, dtype=np.int64)
    totals: list[IntArray] = []
    sequences: list[IntArray] = []
    for start, stop in _blocks(len(tokens), shards):
        block = tokens[start:stop]
        if strategy == "wrapped":
            rows, counts = _wrap(block, max_length)
        else:
            placed = pieces(block, max_length) if strategy == "bfd_split" else block
            rows, counts = _best_fit(np.minimum(placed[placed > 0], max_length), max_length)
        totals.append(rows)
        sequences.append(counts)
    empty = np.zeros(0, dtype=np.int64)
    return Packed(
        totals=np.concatenate(totals) if totals else empty,
        sequences=np.concatenate(sequences) if sequences else empty,
        max_length=max_length,
        tokens_given=int(tokens.sum()),
    )


def pieces(tokens: IntArray, max_length: int) -> IntArray:
    """Cut every row into pieces of ``max_length``, the last of them shorter, in order."""
    tokens = tokens[tokens > 0]
    counts = -(-tokens // max_length)
    found = np.full(int(counts.sum()), max_length, dtype=np.int64)
    found[np.cumsum(counts) - 1] = tokens - (counts - 1) * max_length
    return found


def document_starts(tokens: IntArray, shards: int = 1) -> IntArray:
    """Return int64[n], tokens before every row in the block ``wrapped`` joins it in."""
    before = np.cumsum(tokens) - tokens
    for start, stop in _blocks(len(tokens), shards):
        before[start:stop] -= before[start]
    return before


def _blocks(rows: int, shards: int) -> list[tuple[int, int]]:
    """Return where blocks start and stop: datasets cuts shards first, the longer ones leading."""
    shards = max(1, min(shards, rows))
    size, longer = divmod(rows, shards)
    blocks = []
    start = 0
    for shard in range(shards):
        stop = start + size + (shard < longer)
        blocks += [(at, min(at + BLOCK_ROWS, stop)) for at in range(start, stop, BLOCK_ROWS)]
        start = stop
    return blocks


def _best_fit(pieces: IntArray, max_length: int) -> tuple[IntArray, IntArray]:
    """Place pieces, longest first, each where it leaves the least space; return bins as made."""
    ordered = np.sort(pieces)[::-1].tolist()
    left: list[int] = []  # space left, by bin
    placed: list[int] = []  # the bin of every piece, in placing order
    free: list[int] = []  # open bins, sorted
    age = 0
    for length in ordered:
        at = bisect_left(free, length << _SPACE_SHIFT)
        if at < len(free):
            key = free.pop(at)
            home = key & _BIN_MASK
            space = (key >> _SPACE_SHIFT) - length
            left[home] = space
        else:
            home = len(left)
            space = max_length - length
            left.append(space)
        placed.append(home)
        if space:
            insort(free, (space << _SPACE_SHIFT) | (age << _BIN_BITS) | home)
            age += 1
    totals = max_length - np.array(left, dtype=np.int64)
    counts = np.bincount(np.array(placed, dtype=np.int64), minlength=len(left))
    return totals, counts.astype(np.int64)


def _wrap(tokens: IntArray, max_length: int) -> tuple[IntArray, IntArray]:
    """Join all rows and cut the whole every ``max_length`` tokens."""
    whole = int(tokens.sum())
    rows = -(-whole // max_length)
    totals = np.full(rows, max_length, dtype=np.int64)
    if rows:
        totals[-1] = whole - (rows - 1) * max_length
    begins = (np.cumsum(tokens) - tokens)[tokens > 0]
    return totals, np.bincount(begins // max_length, minlength=rows).astype(np.int64)
