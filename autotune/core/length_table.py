"""Works out what each sensible ``max_length`` does to the rows.

Pure functions of lengths; they prepare, pack tokens and print nothing. Which length to take is
decided in ``advice``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autotune.core.cut_words import Setting
from autotune.core.job import Trainer
from autotune.core.kept import Reference, documents, kept_labels
from autotune.core.length_report import LengthAt, PackingAt
from autotune.core.lengths import BoolArray, Lengths
from autotune.core.packing import STRATEGIES, pack
from autotune.core.profile import LengthHistogram
from autotune.core.shapes import padding_waste

#: Most lengths that are listed.
MOST_LENGTHS = 9
#: Shortest power of two that is listed, in tokens.
_SHORTEST = 64
#: A power of two that keeps less of the label tokens is no choice for anybody.
_LEAST_LISTED = 0.5


def sensible_lengths(
    lengths: Lengths, setting: Setting, positions: int | None, min_retention_ratio: float
) -> list[int]:
    """Return the ``max_length`` values worth a line, ascending, at most ``MOST_LENGTHS``.

    The lengths the search would try, the user's own, TRL's default, and powers of two that keep
    at least half of the label tokens.

    Args:
        lengths: the rows, uncut.
        setting: what the user's config says.
        positions: longest sequence the model takes in tokens, None when it has no limit.
        min_retention_ratio: least share of the label tokens to keep, 0..1.
    """
    wanted = set(lengths.max_length_choices(positions, min_retention_ratio, None))
    wanted |= {n for n in (setting.value, _within(setting.default, positions)) if n is not None}
    top = max(*wanted, lengths.longest)
    powers = [2**i for i in range(_SHORTEST.bit_length() - 1, top.bit_length())]
    limit = top if positions is None else min(top, positions)
    powers = [p for p in powers if p <= limit and lengths.retention_ratio(p) >= _LEAST_LISTED]
    room = max(MOST_LENGTHS - len(wanted), 0)
    return sorted(wanted | set([p for p in powers if p not in wanted][:room]))


def length_at(
    lengths: Lengths, max_length: int, trainer: Trainer, *, shards: int = 1, seed: int = 0
) -> LengthAt:
    """Return what one ``max_length`` does to the rows.

    Args:
        lengths: the rows, uncut.
        max_length: the cut in tokens, at least 1.
        trainer: Reward leaves out rows that are longer (trl 1.16); the others cut them. SFT packs.
        shards: TRL's ``dataset_num_proc``, see ``autotune.core.packing.pack``.
        seed: seed of the sampled order padding is counted in.
    """
    whole = lengths.tokens <= max_length
    kept = whole if trainer is Trainer.REWARD else lengths.kept_rows(max_length)
    labels = (
        int(lengths.labels[kept].sum())
        if trainer is Trainer.REWARD
        else lengths.labels_kept(max_length)
    )
    remaining = _only(lengths, kept)
    return LengthAt(
        max_length=max_length,
        tokens_kept_ratio=_share(_all_tokens(remaining, max_length), _all_tokens(lengths, None)),
        label_tokens_kept_ratio=_share(labels, lengths.labels_kept(None)),
        rows_cut=lengths.rows_cut(max_length),
        rows_dropped=int((~kept).sum()),
        padding_ratio_by_batch=padding_waste(remaining, max_length=max_length, seed=seed),
        packing=_packings(lengths, max_length, shards) if trainer is Trainer.SFT else (),
    )


def _packings(lengths: Lengths, max_length: int, shards: int) -> tuple[PackingAt, ...]:
    filled = int((lengths.tokens > 0).sum())
    whole = Reference(max(lengths.longest, 1))
    found = []
    for strategy in STRATEGIES:
        packed = pack(lengths.tokens, max_length, strategy, shards=shards)
        counts = documents(lengths, max_length, strategy, shards=shards)
        kept = kept_labels(lengths, max_length, strategy, whole, shards=shards)
        found.append(
            PackingAt(
                strategy=strategy,
                rows=len(packed),
                fill_ratio=packed.fill_ratio,
                tokens_kept_ratio=_share(packed.tokens_kept, packed.tokens_given),
                documents_per_row=filled / max(len(packed), 1),
                mixes=strategy == "wrapped",
                label_tokens_kept_ratio=kept / max(lengths.labels_kept(None), 1),
                documents_cut=counts.cut,
                documents_split=counts.split,
            )
        )
    return tuple(found)


def marked(
    table: Sequence[LengthAt], setting: Setting, advised: int, positions: int | None
) -> tuple[LengthAt, ...]:
    """Return the table with the user's own length, TRL's default and the advised one marked."""
    names = (
        ("yours", setting.value if setting.given else None),
        ("TRL's default", _within(setting.default, positions)),
        ("advised", advised),
    )
    return tuple(
        row.model_copy(update={"marks": tuple(n for n, value in names if value == row.max_length)})
        for row in table
    )


def histogram_of(lengths: Lengths, bins: int = 24) -> LengthHistogram:
    """Count rows by length, fine up to the 99th percentile; the last bin holds the longest rows.

    Args:
        lengths: the rows, at least one.
        bins: most bins.
    """
    usual = lengths.quantiles()["0.99"]
    low = int(lengths.tokens.min())
    step = max(-(-(usual - low) // max(bins - 2, 1)), 1)
    nice = next(n for n in _nice_steps() if n >= step)
    edges = [*range(low // nice * nice, usual + nice + 1, nice)]
    if edges[-1] <= lengths.longest:
        edges.append(lengths.longest + 1)
    counts, _ = np.histogram(lengths.tokens, bins=np.array(edges))
    return LengthHistogram(edges=tuple(edges), rows=tuple(int(c) for c in counts))


def _nice_steps() -> list[int]:
    return [m * 10**e for e in range(9) for m in (1, 2, 5)]


def _only(lengths: Lengths, kept: BoolArray) -> Lengths:
    if bool(kept.all()):
        return lengths
    arrays = {
        name: getattr(lengths, name)[kept]
        for name in ("tokens", "labels", "first_labels", "real", "chosen", "rejected")
        if getattr(lengths, name) is not None
    }
    return dataclasses.replace(lengths, **arrays)


def _all_tokens(lengths: Lengths, max_length: int | None) -> int:
    """Return the tokens of all rows after a cut, of both sides where there are two."""
    if lengths.chosen is None or lengths.rejected is None:
        return int(lengths.cut(max_length).sum())
    sides = (lengths.chosen, lengths.rejected)
    return sum(int((s if max_length is None else np.minimum(s, max_length)).sum()) for s in sides)


def _within(value: int | None, limit: int | None) -> int | None:
    return value if value is None or limit is None or value <= limit else None


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
