"""Chooses the micro-batches of a probe from the rows TRL really prepared.

Works on lengths only; the order it returns is given to the trainer as a data set read in sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

#: Updates after which the mixed batches of a verification begin again; peaks are compared over as
#: many (probe/judge_run.py).
MIXED_CYCLE = 5
#: Most shapes that are timed where the first use of each costs something: the time model has three
#: coefficients, and a compiler takes seconds for a shape.
_MOST_WARMED = 16


@dataclass(frozen=True)
class RowFacts:
    """Lengths of the trainer's prepared rows.

    Args:
        tokens: tokens of each row after truncation, int64[n]; of the longer side of a pair.
        labels: label tokens of each row that are trained on, int64[n]; of both sides of a pair.
        sequences: documents in each row, int64[n]; 1 unless packed.
        longest: tokens of the longest document of each row, int64[n].
        source: index of each row in the data set as given, int64[n]; -1 where rows are packed.
        both_sides: tokens of the two sides of each pair together, int64[n]; None unless pairs.
        prompts: tokens of each prompt, int64[n], where a micro-batch also runs every prompt with
            the completion of the row before it (KTO); else None.
    """

    tokens: IntArray
    labels: IntArray
    sequences: IntArray
    longest: IntArray
    source: IntArray
    both_sides: IntArray | None = None
    prompts: IntArray | None = None

    @property
    def totals(self) -> IntArray:
        """Tokens the model reads of each row, int64[n]."""
        return self.tokens if self.both_sides is None else self.both_sides


@dataclass(frozen=True)
class ShapeRule:
    """How wide the collator makes a micro-batch.

    Args:
        flattened: a micro-batch is one row of all its tokens rather than padded.
        multiple: the width is padded up to a multiple of this; None does not.
    """

    flattened: bool = False
    multiple: int | None = None

    def width(self, facts: RowFacts, batch: BatchFacts) -> int:
        """Return the columns of a micro-batch."""
        tokens = facts.tokens[list(batch.rows)]
        width = int(tokens.sum() if self.flattened else tokens.max())
        return width if not self.multiple else -(-width // self.multiple) * self.multiple


@dataclass(frozen=True)
class BatchFacts:
    """One micro-batch: its rows (positions in the prepared rows) and what they add up to."""

    rows: tuple[int, ...]
    sequences: int
    useful_tokens: int
    label_tokens: int
    longest: int


def batch_of(facts: RowFacts, rows: list[int]) -> BatchFacts:
    """Add up one micro-batch."""
    index = np.asarray(rows)
    return BatchFacts(
        rows=tuple(rows),
        sequences=int(facts.sequences[index].sum()),
        useful_tokens=int(facts.totals[index].sum()),
        label_tokens=int(facts.labels[index].sum()),
        longest=int(facts.longest[index].max()),
    )


def worst_batches(facts: RowFacts, batch: int) -> list[BatchFacts]:
    """Return the row sets that can need most memory.

    They have the most padded tokens, the most label tokens, and the widest row among the rows with
    most labels (a padded batch is as wide as its longest row, whatever the others are); of pairs,
    the most tokens on both sides together; in KTO, the longest mismatched sequence.

    Args:
        facts: the prepared rows, a sample when they are packed.
        batch: rows per micro-batch; rows of a sample repeat when it has fewer.
    """
    sets: list[list[int]] = []
    by_labels = _order(facts.labels, facts.tokens)
    widest = int(_order(facts.tokens, facts.labels)[0])
    mixed = [widest, *(int(i) for i in by_labels if int(i) != widest)]
    orders: list[IntArray | list[int]] = [_order(facts.tokens, facts.labels), by_labels, mixed]
    if facts.both_sides is not None:
        orders.append(_order(facts.both_sides, facts.tokens))
    if facts.prompts is not None:
        orders.append(_mismatched(facts.tokens - facts.prompts, facts.prompts))
    for order in orders:
        chosen = [int(i) for i in np.resize(np.asarray(order), batch)]
        if sorted(chosen) not in [sorted(s) for s in sets]:
            sets.append(chosen)
    return [batch_of(facts, s) for s in _not_dominated(facts, sets)]


def _order(first: IntArray, then: IntArray) -> IntArray:
    """Return rows from highest to lowest in ``first``, then in ``then``, then earliest."""
    return np.lexsort((np.arange(first.size), -then, -first))


def _mismatched(completions: IntArray, prompts: IntArray) -> list[int]:
    """Return rows such that the longest prompt follows the longest completion of another row."""
    first = int(_order(completions, prompts)[0])
    return [first, *(int(row) for row in _order(prompts, completions) if int(row) != first)]


def _not_dominated(facts: RowFacts, sets: list[list[int]]) -> list[list[int]]:
    """Drop a set when an earlier one is at least as wide, as full and as rich in labels."""
    kept: list[tuple[int, ...]] = []
    out: list[list[int]] = []
    for rows in sets:
        tokens, labels = facts.tokens[rows], facts.labels[rows]
        size: tuple[int, ...] = (
            int(tokens.max()),
            int(facts.totals[rows].sum()),
            int(labels.sum()),
        )
        if facts.prompts is not None:
            completions = np.roll(tokens - facts.prompts[rows], 1)
            size = (*size, int((facts.prompts[rows] + completions).max()))
        if not any(all(a >= b for a, b in zip(k, size, strict=True)) for k in kept):
            kept.append(size)
            out.append(rows)
    return out


def timed_batches(
    facts: RowFacts, wanted: list[int] | None, batch: int, steps: int, rows: int, whole: int
) -> tuple[list[BatchFacts], bool]:
    """Return the micro-batches that are timed, and whether rows had to be used twice.

    Args:
        facts: the prepared rows.
        wanted: source rows of the paired sample, in order; None takes packed rows, spread evenly
            over their fill.
        batch: rows per micro-batch.
        steps: least number of micro-steps.
        rows: least number of rows of unpacked candidates.
        whole: the number of micro-steps is a multiple of this (the accumulation).
    """
    if wanted is not None:
        at = {int(s): i for i, s in enumerate(facts.source)}
        pool = [at[s] for s in wanted if s in at]
        need = max(steps * batch, rows)
    else:
        pool = [int(i) for i in np.random.default_rng(0).permutation(facts.tokens.size)]
        need = steps * batch
    count = -(-need // batch)
    count += -count % whole
    order = [int(i) for i in np.resize(np.asarray(pool), count * batch)]
    batches = [batch_of(facts, order[i * batch : (i + 1) * batch]) for i in range(count)]
    return batches, count * batch > len(pool)


def mixed_batches(
    facts: RowFacts, worst: list[BatchFacts], batch: int, updates: int
) -> list[BatchFacts]:
    """Return the micro-batch of every update of a verification: the worst, typical and short ones.

    They follow each other in one order over and over, so that any five updates are like any others.

    Args:
        facts: the prepared rows.
        worst: from `worst_batches`.
        batch: rows per micro-batch.
        updates: how many.
    """
    rising = [int(i) for i in np.argsort(facts.totals, kind="stable")]
    middle = max(0, (len(rising) - batch) // 2)
    short, typical = (
        batch_of(facts, [int(i) for i in np.resize(np.asarray(rising[at:][:batch]), batch)])
        for at in (0, middle)
    )
    first, second, third = (worst[i % len(worst)] for i in range(3))
    cycle = [first, typical, second, short, third]
    return [cycle[i % MIXED_CYCLE] for i in range(updates)]


def of_few_shapes(
    facts: RowFacts, timed: list[BatchFacts], shape: ShapeRule
) -> tuple[list[BatchFacts], int]:
    """Return as many micro-batches of fewer shapes, and how many shapes are left out.

    Where the first use of a shape costs something, a sample in which each occurs once would be paid
    for once more than it is timed; time follows the shape, so an even choice of them says as much.

    Args:
        facts: the prepared rows.
        timed: the micro-batches that would be timed.
        shape: how wide they are.
    """
    widths = sorted({shape.width(facts, batch) for batch in timed})
    if len(widths) <= _MOST_WARMED:
        return timed, 0
    even = np.linspace(0, len(widths) - 1, _MOST_WARMED).round()
    chosen = {widths[int(i)] for i in even}
    kept = [batch for batch in timed if shape.width(facts, batch) in chosen]
    return [kept[i % len(kept)] for i in range(len(timed))], len(widths) - len(chosen)


def warmup_batches(
    facts: RowFacts, timed: list[BatchFacts], whole: int, shape: ShapeRule, *, every_shape: bool
) -> list[BatchFacts]:
    """Return the timed micro-batches that are run once before time is taken, the largest first.

    Args:
        facts: the prepared rows.
        timed: the micro-batches that are timed.
        whole: the number of micro-steps is a multiple of this (the accumulation).
        shape: how wide they are.
        every_shape: every shape is among them (the first use of each costs something); otherwise
            one update's worth is.
    """
    ordered = sorted(timed, key=lambda batch: shape.width(facts, batch), reverse=True)
    if not every_shape:
        return ordered[:whole]
    shapes = list({shape.width(facts, batch): batch for batch in ordered}.values())
    return [shapes[i % len(shapes)] for i in range(-(-len(shapes) // whole) * whole)]
