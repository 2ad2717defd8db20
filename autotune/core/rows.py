"""Which rows probes run on: the worst for memory, paired ones for speed, a block for packing.

Answers with row indices that depend on the lengths and the seed alone: never on the order steps
come in or how many there are. It does not touch the rows themselves.
"""

from __future__ import annotations

import numpy as np

from autotune.core.lengths import IntArray, Lengths


def worst_rows(
    lengths: Lengths, *, batch: int, max_length: int | None, mismatched: bool = False
) -> list[list[int]]:
    """Return the row sets whose micro-batch can need the most memory, without repeats.

    The first set makes the most padded tokens (the longest rows after the cut; among equals those
    with most labels), the next the most label tokens, the next the longest row beside those; for
    preference rows one more has the longest chosen and rejected together, and where prompts are
    also run with other rows' completions one more has the longest of each. Rows TRL drops after
    the cut are never among them.

    Args:
        lengths: the rows, uncut.
        batch: rows per micro-batch, at least 1; sets are shorter when there are fewer rows.
        max_length: cut in tokens, None for none.
        mismatched: whether a micro-batch also runs prompts with the completions of other rows.
    """
    rows = np.flatnonzero(lengths.kept_rows(max_length))
    cut = lengths.cut(max_length)
    labels = lengths.labels_within(max_length)
    orders = [_top(rows, batch, cut, labels), _top(rows, batch, labels, cut)]
    if orders[0]:
        # A padded batch is as wide as its longest row, whatever the others are.
        widest = orders[0][0]
        orders.append([widest, *(row for row in orders[1] if row != widest)][:batch])
    if lengths.chosen is not None and lengths.rejected is not None:
        orders.append(_top(rows, batch, lengths.both_sides(max_length), cut))
    if mismatched and orders[0]:
        prompts = cut - labels
        longest = _top(rows, 1, labels, prompts)[0]
        after = (row for row in _top(rows, batch, prompts, labels) if row != longest)
        orders.append([longest, *after][:batch])
    distinct: dict[frozenset[int], list[int]] = {}
    for order in orders:
        if order:
            distinct.setdefault(frozenset(order), order)
    return list(distinct.values())


def paired_rows(lengths: Lengths, n: int = 64, seed: int = 0) -> list[int]:
    """Return one sample of n rows over the whole length distribution, the same for every candidate.

    Rows sorted by length are divided into n equal groups and one row is drawn from each, then the
    order is shuffled. With fewer than n rows every row comes, over and over, until there are n.

    Args:
        lengths: the rows, uncut, at least one.
        n: rows wanted.
        seed: seed of both draws.
    """
    rng = np.random.default_rng(seed)
    ranked = np.argsort(lengths.tokens, kind="stable")
    if len(ranked) >= n:
        sample = rng.permutation(_one_of_each(ranked, n, rng))
    else:
        sample = np.resize(rng.permutation(ranked), n if len(ranked) else 0)
    return [int(row) for row in sample]


def packing_block(lengths: Lengths, n: int = 1000, seed: int = 0) -> list[int]:
    """Return up to n rows to pack as one full block: the longest rows and a stratified rest.

    The longest hundredth is always in it, so that full packed rows occur; the others stand for the
    distribution. Rows come in data set order, as TRL packs them.

    Args:
        lengths: the rows, uncut.
        n: rows of a block; TRL packs 1000 together.
        seed: seed of the draw.
    """
    if len(lengths) <= n:
        return list(range(len(lengths)))
    rng = np.random.default_rng(seed)
    ranked = np.argsort(lengths.tokens, kind="stable")
    longest = max(n // 100, 1)
    rest = _one_of_each(ranked[:-longest], n - longest, rng)
    return [int(row) for row in np.sort(np.concatenate((rest, ranked[-longest:])))]


def _top(rows: IntArray, count: int, first: IntArray, then: IntArray) -> list[int]:
    """Return the rows highest in ``first``, then in ``then``, then earliest."""
    order = np.lexsort((rows, -then[rows], -first[rows]))
    return [int(row) for row in rows[order[:count]]]


def _one_of_each(ranked: IntArray, n: int, rng: np.random.Generator) -> IntArray:
    """Draw one row of each of n groups of neighbours that differ in size by at most one."""
    edges = np.linspace(0, len(ranked), n + 1).astype(np.int64)
    return ranked[rng.integers(edges[:-1], np.maximum(edges[1:], edges[:-1] + 1))]
