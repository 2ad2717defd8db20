"""Which micro-batches are traced: the worst for memory, a few of different size for time.

Answers with lengths of rows; it neither builds a batch nor traces one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.job import Trainer
from autotune.core.lengths import IntArray
from autotune.core.packing import pack
from autotune.core.rows import worst_rows
from autotune.core.shapes import Shapes
from autotune.knobs.facts import Facts
from autotune.predict.request import Documents, Judged, Pair, Row

#: Packing strategies whose rows keep documents apart.
_APART = ("bfd", "bfd_split")
#: Narrowest row traced for time: below it nothing but overhead is left.
_NARROWEST = 16

Rows = tuple[Row, ...]


def worst_batch(candidate: Candidate, facts: Facts) -> Rows:
    """Return the rows of the micro-batch that can need the most memory.

    Unpacked it is as wide as the widest row set, its pad multiple included, and as rich in labels
    as the richest (`autotune.core.rows.worst_rows`): an upper bound of each of them.

    Args:
        candidate: its batch, length, packing and pad multiple.
        facts: job and rows.
    """
    batch = int(candidate.get("per_device_train_batch_size") or 1)
    length = candidate.get("max_length")
    cut = None if length is None else int(length)
    packing = str(candidate.get("packing", "none"))
    if packing != "none" and cut is not None:
        packed = pack(facts.lengths.tokens, cut, packing, shards=facts.shards)
        fullest = np.argsort(-packed.totals, kind="stable")[:batch]
        counts = packed.sequences if packing in _APART else np.ones_like(packed.sequences)
        return tuple(
            Documents(tokens=_pieces(int(packed.totals[row]), int(counts[row]))) for row in fullest
        )
    kto = facts.job.trainer is Trainer.KTO
    sets = worst_rows(facts.lengths, batch=batch, max_length=cut, mismatched=kto)
    if not sets:
        return (_row(_NARROWEST, 1.0, facts),)
    multiple = int(candidate.get("pad_to_multiple_of") or 1)
    if facts.job.trainer is not Trainer.SFT:
        return tuple(_real_row(row, cut, multiple, facts) for row in sets[0])
    tokens, labels = facts.lengths.cut(cut), facts.lengths.labels_within(cut)
    padded = -(-tokens // multiple) * multiple
    richest = np.max([np.sort(labels[rows])[::-1] for rows in sets], axis=0)
    return tuple(
        Documents(tokens=(int(padded[row]),), label_tokens=int(min(tokens[row], label)))
        for row, label in zip(sets[0], richest, strict=True)
    )


def precomputes(candidate: Candidate, facts: Facts) -> bool:
    """Whether a candidate runs over the reference once, before it trains."""
    own = facts.option("precompute_ref_log_probs")
    return bool(candidate.get("precompute_ref_log_probs", own))


def reference_batches(candidate: Candidate, facts: Facts) -> Candidate:
    """Return a candidate whose micro-batches are those of its pass over the reference.

    TRL takes rows in their order there, ``precompute_ref_batch_size`` at once where that is set.
    """
    batch = facts.option("precompute_ref_batch_size")
    knobs = {**candidate.knobs, "train_sampling_strategy": "sequential"}
    if batch:
        knobs["per_device_train_batch_size"] = int(batch)
    return candidate.model_copy(update={"knobs": knobs})


def timed_batches(passes: Sequence[Shapes], facts: Facts, *, flattened: bool) -> list[Rows]:
    """Return micro-batches that span the shapes of some passes, for one fit of all of them.

    Args:
        passes: micro-batches of the candidates that share the fit.
        facts: job and rows.
        flattened: whether rows are joined into one; else they are padded to one width.
    """
    widths = np.concatenate([p.width for p in passes])
    low = max(_NARROWEST, int(np.quantile(widths, 0.1)))
    high = max(low + 2, int(widths.max()))
    middle = (low + high) // 2
    if flattened:
        document = max(1, int(facts.lengths.tokens.mean()))
        return [
            (Documents(tokens=_pieces(size, max(1, size // document))),)
            for size in (low, middle, high)
        ]
    share = _trained_share(facts)
    sides = 1 if facts.lengths.rejected is None else 2
    most = max(int(p.tensor_rows.max()) for p in passes) // sides
    sizes = [(1, low), (1, high), (most, low), (most, high)] if most > 1 else []
    return [
        (_row(width, share, facts),) * rows
        for rows, width in sizes or [(1, low), (1, middle), (1, high)]
    ]


def shape_of(rows: Rows, *, flattened: bool) -> tuple[float, float]:
    """Return computed tokens and width of a micro-batch, as `autotune.core.shapes` counts them.

    Args:
        rows: the micro-batch.
        flattened: whether it is joined into one row.
    """
    widths = [_width(row) for row in rows]
    if flattened:
        return float(sum(widths)), float(sum(widths))
    sides = 2 if isinstance(rows[0], Pair) else 1
    return float(sides * len(rows) * max(widths)), float(max(widths))


def flattens(candidate: Candidate) -> bool:
    """Whether a candidate joins the rows of a micro-batch into one."""
    return bool(candidate.get("padding_free")) or candidate.get("packing") in _APART


def _width(row: Row) -> int:
    if isinstance(row, Documents):
        return sum(row.tokens)
    if isinstance(row, Pair):
        return row.prompt + max(row.chosen, row.rejected)
    return row.prompt + row.completion


def _row(width: int, share: float, facts: Facts) -> Row:
    """Return a row of the job's trainer that is this wide and trains this share of it."""
    trained = min(width - 1, max(1, round(share * width)))
    if facts.job.trainer is Trainer.SFT:
        return Documents(tokens=(width,), label_tokens=trained)
    if facts.job.trainer is Trainer.KTO:
        return Judged(prompt=width - trained, completion=trained)
    if facts.job.trainer is Trainer.REWARD:
        return Pair(prompt=0, chosen=width, rejected=width)
    return Pair(prompt=width - trained, chosen=trained, rejected=trained)


def _real_row(index: int, cut: int | None, multiple: int, facts: Facts) -> Row:
    """Return one row of the data set as wide as it is padded after the cut."""
    lengths = facts.lengths
    tokens, labels = int(lengths.cut(cut)[index]), int(lengths.labels_within(cut)[index])
    if lengths.chosen is None or lengths.rejected is None:
        completion = max(1, min(labels, tokens - 1))
        return Judged(prompt=max(1, tokens - completion), completion=completion)
    reward = facts.job.trainer is Trainer.REWARD
    first = 0 if reward or lengths.first_labels is None else int(lengths.first_labels[index])
    sides = [int(side[index]) for side in (lengths.chosen, lengths.rejected)]
    chosen, rejected = (side if cut is None else min(side, cut) for side in sides)
    chosen, rejected = (-(-side // multiple) * multiple for side in (chosen, rejected))
    prompt = max(0, min(first, chosen - 1, rejected - 1))
    return Pair(prompt=prompt, chosen=max(1, chosen - prompt), rejected=max(1, rejected - prompt))


def _pieces(tokens: int, count: int) -> tuple[int, ...]:
    """Cut tokens into documents of about equal length."""
    edges: IntArray = np.linspace(0, tokens, max(1, min(count, tokens)) + 1).astype(np.int64)
    return tuple(int(n) for n in np.diff(edges))


def _trained_share(facts: Facts) -> float:
    """Return the share of an average row that is trained on; of a pair, of its longer side."""
    lengths = facts.lengths
    total = max(1, int(lengths.tokens.sum()))
    if lengths.chosen is None:
        return min(1.0, int(lengths.labels.sum()) / total)
    prompts = 0 if lengths.first_labels is None else int(lengths.first_labels.sum())
    return max(0.0, 1.0 - prompts / total)
