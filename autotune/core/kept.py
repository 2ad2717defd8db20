"""What training keeps of the reference: label tokens with all that comes before them, documents.

A label counts as kept only where it is trained and sees every token the reference shows it: a
piece that begins in the middle of a document has lost what its labels are conditioned on. Pure
functions of lengths; which reference a job has is decided in ``autotune.knobs.retention``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.core.lengths import BoolArray, IntArray, Lengths
from autotune.core.packing import document_starts, pieces

#: Packing strategies that continue a document in another row, without its beginning.
SPLITTING = ("bfd_split", "wrapped")


@dataclass(frozen=True)
class Reference:
    """What every share of tokens is a share of.

    Args:
        length: tokens of a row that count, at least 1.
        splits: whether what lies beyond is trained too, in pieces of ``length`` tokens.
    """

    length: int
    splits: bool = False

    def labels(self, lengths: Lengths) -> int:
        """Return the label tokens the reference trains."""
        return lengths.labels_kept(None if self.splits else self.length)


@dataclass(frozen=True)
class Documents:
    """Count what becomes of documents; the first four add up to all of them.

    Args:
        whole: trained from their first to their last token, in one piece.
        cut: lose their end, and are trained.
        split: continue in another row, without their beginning.
        left_out: not trained at all: TRL drops what keeps no label (Reward: what is longer).
        unlabelled: of the others, those that keep no label before the first cut or split: nothing
            of them is trained, or only without what comes before it.
    """

    whole: int
    cut: int
    split: int
    left_out: int
    unlabelled: int

    @property
    def total(self) -> int:
        """All documents."""
        return self.whole + self.cut + self.split + self.left_out


def kept_labels(
    lengths: Lengths, max_length: int | None, packing: str, reference: Reference, *, shards: int = 1
) -> float:
    """Return how many of the reference's label tokens are trained with all it shows them.

    Exact for rows that are cut and for ``bfd_split``. ``wrapped`` cuts where rows happen to end:
    there, labels at one place of their documents count as alike.

    Args:
        lengths: the rows, uncut.
        max_length: the cut, or the length of a packed row; None for none.
        packing: ``none`` or TRL's ``packing_strategy``.
        reference: what they are held against.
        shards: TRL's ``dataset_num_proc``, see ``autotune.core.packing.pack``.
    """
    if max_length is None or packing not in SPLITTING:
        beyond = None if reference.splits else reference.length
        ends = [n for n in (max_length, beyond) if n is not None]
        return lengths.labels_kept(min(ends) if ends else None)
    labels = lengths.label_positions
    return _in_context(labels, lengths, max_length, packing, reference, shards)


def useful_ratio(
    lengths: Lengths, max_length: int | None, packing: str, reference: Reference, *, shards: int = 1
) -> float:
    """Return the share of the trained tokens that the reference trains too, in context, 0..1.

    Tokens of a document whose labels are all cut away earn nothing: packed, it is run through the
    model and teaches nothing.

    Args: as for `kept_labels`.
    """
    if max_length is not None and packing in SPLITTING:
        places = _longer_than(lengths.tokens, lengths.longest)
        kept = _in_context(places, lengths, max_length, packing, reference, shards)
        return kept / max(int(lengths.tokens.sum()), 1)
    rows = lengths.kept_rows(max_length if packing == "none" else None)
    trained = int(lengths.both_sides(max_length)[rows].sum())
    ends = [n for n in (max_length, None if reference.splits else reference.length) if n]
    labelled = rows & lengths.kept_rows(max_length) & (lengths.labels > 0)
    within = int(lengths.both_sides(min(ends) if ends else None)[labelled].sum())
    return within / trained if trained else 1.0


def documents(
    lengths: Lengths, max_length: int | None, packing: str, *, shards: int = 1
) -> Documents:
    """Return what becomes of the documents; arguments as for `kept_labels`."""
    rows = len(lengths)
    if max_length is None:
        unlabelled = int((lengths.labels == 0).sum())
        return Documents(whole=rows, cut=0, split=0, left_out=0, unlabelled=unlabelled)
    longer = lengths.tokens > max_length
    kept = lengths.kept_rows(max_length)
    if packing == "none":
        cut = int((longer & kept).sum())
        left_out = int((~kept).sum())
        return Documents(rows - cut - left_out, cut, 0, left_out, unlabelled=0)
    unlabelled = int((~kept).sum())
    if packing not in SPLITTING:
        cut = int(longer.sum())
        return Documents(rows - cut, cut, 0, 0, unlabelled)
    if packing == "wrapped":
        room = max_length - document_starts(lengths.tokens, shards) % max_length
        longer = room < lengths.tokens
    split = int(longer.sum())
    return Documents(rows - split, 0, split, 0, unlabelled)


def unlabelled_rows(lengths: Lengths, max_length: int) -> BoolArray:
    """Return bool[n], rows with labels of which none lies within ``max_length``."""
    lost: BoolArray = (lengths.labels > 0) & ~lengths.kept_rows(max_length)
    return lost


def least_length(lengths: Lengths) -> int:
    """Return the smallest ``max_length`` that keeps a trained token of every row that has one.

    Of Reward, which leaves out what is longer, the length of the longest row.
    """
    if lengths.drops_longer:
        return lengths.longest
    if lengths.first_labels is None:
        return 1
    return int(lengths.first_labels[lengths.labels > 0].max(initial=0)) + 1


def _in_context(
    counts: IntArray,
    lengths: Lengths,
    max_length: int,
    packing: str,
    reference: Reference,
    shards: int,
) -> float:
    """Return how much of what is counted by position keeps the context the reference gives it."""
    if packing == "bfd_split":
        at = np.arange(len(counts))
        begins = at - at % max_length  # where the piece of a position begins
        if reference.splits:
            return int(counts[begins <= at - at % reference.length].sum())
        return int(counts[: min(max_length, reference.length)].sum())
    # Joined rows show a document from its beginning up to the first border: the share of those
    # that reach so far counts. Where the reference splits, each of its pieces is such a document.
    starts, own, size = document_starts(lengths.tokens, shards), lengths.tokens, reference.length
    if reference.splits:
        starts, own = _piece_starts(starts, own, size), pieces(own, size)
        rows = np.zeros((-(-len(counts) // size), size), dtype=np.int64)
        rows.flat[: len(counts)] = counts
        counts = rows.sum(axis=0)
    places = min(len(counts), size)
    shown = _longer_than(np.minimum(own, max_length - starts % max_length), places)
    return float((counts[:places] * shown / np.maximum(_longer_than(own, places), 1)).sum())


def _piece_starts(starts: IntArray, tokens: IntArray, size: int) -> IntArray:
    """Return where the pieces of every row start, given where the rows do."""
    counts = -(-tokens // size)
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    places: IntArray = np.repeat(starts, counts) + number * size
    return places


def _longer_than(tokens: IntArray, places: int) -> npt.NDArray[np.int64]:
    """Return int64[places], for every position how many rows have a token there."""
    counts = np.bincount(np.minimum(tokens, places), minlength=places + 1)
    reach: IntArray = np.cumsum(counts[::-1])[::-1][1:].astype(np.int64)
    return reach
