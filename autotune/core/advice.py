"""Works out what each ``max_length`` does to the rows, and which one to take.

Pure functions of lengths; they prepare, pack tokens and print nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.job import Trainer
from autotune.core.length_report import Advice, LengthAt, PackingAt
from autotune.core.lengths import BoolArray, Lengths
from autotune.core.packing import STRATEGIES, pack
from autotune.core.profile import LengthHistogram
from autotune.core.shapes import padding_waste, shapes_of_pass
from autotune.core.units import show_ratio

#: Most lengths that are listed.
MOST_LENGTHS = 9
#: Shortest power of two that is listed, in tokens.
_SHORTEST = 64
#: A power of two that keeps less of the label tokens is no choice for anybody.
_LEAST_LISTED = 0.5
#: Batch size the padding sentence speaks of: TRL's default.
_BATCH = 8
#: From this share of padding on, packing or grouping is worth a sentence of advice.
_MUCH_PADDING = 0.10


@dataclass(frozen=True)
class Setting:
    """What the user's config says of ``max_length``.

    Args:
        given: whether it says anything.
        value: what it says; None switches the cut off.
        default: what TRL takes when it says nothing; None cuts nothing.
    """

    given: bool
    value: int | None
    default: int | None

    @property
    def implied(self) -> int | None:
        """The cut TRL would make; None for none."""
        return self.value if self.given else self.default


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
    documents = int((lengths.tokens > 0).sum())
    found = []
    for strategy in STRATEGIES:
        packed = pack(lengths.tokens, max_length, strategy, shards=shards)
        found.append(
            PackingAt(
                strategy=strategy,
                rows=len(packed),
                fill_ratio=packed.fill_ratio,
                tokens_kept_ratio=_share(packed.tokens_kept, packed.tokens_given),
                documents_per_row=documents / max(len(packed), 1),
                mixes=strategy == "wrapped",
            )
        )
    return tuple(found)


def advise(
    table: Sequence[LengthAt],
    lengths: Lengths,
    setting: Setting,
    trainer: Trainer,
    positions: int | None,
    min_retention_ratio: float,
) -> Advice:
    """Return which ``max_length`` to take and why; what holds now is said first.

    Args:
        table: what every sensible length does, ascending, at least one.
        lengths: the rows, uncut.
        setting: what the user's config says.
        trainer: who trains on the rows.
        positions: longest sequence the model takes in tokens, None when it has no limit.
        min_retention_ratio: least share of the label tokens to keep, of those the model can take.
    """
    allowed = [row for row in table if positions is None or row.max_length <= positions] or [
        table[0]
    ]
    most = max(row.label_tokens_kept_ratio for row in allowed)
    enough = [
        row for row in allowed if row.label_tokens_kept_ratio >= min_retention_ratio * most - 1e-12
    ]
    chosen = enough[0]
    shorter = [row for row in table if row.max_length < chosen.max_length]
    sentences = [
        _implied(lengths, setting, trainer),
        _choice(chosen, shorter[-1] if shorter else None, lengths, setting, trainer, positions),
        _padding(chosen, lengths, trainer),
    ]
    return Advice(max_length=chosen.max_length, sentences=tuple(s for s in sentences if s))


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


def _implied(lengths: Lengths, setting: Setting, trainer: Trainer) -> str:
    cut = setting.implied
    if cut is None:
        how = "is off" if setting.given else "is not set and TRL sets none"
        return (
            f"max_length {how}: no row is cut, and the longest row ({_n(lengths.longest)} tokens) "
            "decides the memory of the worst batch."
        )
    subject = (
        f"Your max_length of {cut}"
        if setting.given
        else f"max_length is not set, and TRL's default of {cut}"
    )
    now = length_at(lengths, cut, trainer) if lengths.rows_cut(cut) else None
    if now is None:
        return f"{subject} cuts nothing: the longest row has {_n(lengths.longest)} tokens."
    verb = "leaves out" if trainer is Trainer.REWARD else "cuts"
    text = f"{subject} {verb} {_n(now.rows_cut)} of {_n(len(lengths))} rows and drops "
    text += f"{_lost(now.tokens_kept_ratio)} of the tokens"
    text += f" ({_lost(now.label_tokens_kept_ratio)} of the label tokens)"
    if trainer is not Trainer.REWARD and now.rows_dropped:
        rows = "row" if now.rows_dropped == 1 else "rows"
        text += f"; TRL leaves out {_n(now.rows_dropped)} {rows} of which nothing would be trained"
    return text + "."


def _choice(
    chosen: LengthAt,
    shorter: LengthAt | None,
    lengths: Lengths,
    setting: Setting,
    trainer: Trainer,
    positions: int | None,
) -> str:
    n = chosen.max_length
    verb = "Keep" if n == setting.implied else "Take"
    if not chosen.rows_cut:
        text = f"{verb} max_length {n}: it keeps every token, the longest row has "
        text += f"{_n(lengths.longest)}"
    else:
        text = f"{verb} max_length {n}: it keeps {show_ratio(chosen.tokens_kept_ratio)} of the "
        text += f"tokens ({show_ratio(chosen.label_tokens_kept_ratio)} of the label tokens) and "
        text += "leaves out" if trainer is Trainer.REWARD else "cuts"
        text += f" {_n(chosen.rows_cut)} of {_n(len(lengths))} rows"
        if lengths.longest >= 1.5 * n:
            text += f"; uncut, the longest row ({_n(lengths.longest)} tokens) would make the worst "
            text += f"batch {lengths.longest / n:.1f} times as long"
    if chosen.rows_cut and n == positions:
        text += "; the model takes no longer rows"
    if shorter is not None:
        text += f"; {shorter.max_length} would keep "
        text += f"{show_ratio(shorter.label_tokens_kept_ratio)} of the label tokens"
    return text + "."


def _padding(chosen: LengthAt, lengths: Lengths, trainer: Trainer) -> str:
    waste = chosen.padding_ratio_by_batch.get(_BATCH)
    if waste is None:
        return ""
    text = f"Unpacked at batch {_BATCH}, {show_ratio(waste)} of what is computed is padding"
    if waste < _MUCH_PADDING:
        gains = "packing" if chosen.packing else "grouping by length"
        return f"{text}: {gains} gains little."
    if not chosen.packing:
        grouped = shapes_of_pass(
            lengths,
            batch=_BATCH,
            max_length=chosen.max_length,
            packing="none",
            padding_free=False,
            pad_to_multiple_of=None,
            group_by_length=True,
            seed=0,
        ).padding_ratio
        return f"{text}; rows grouped by length bring it to {show_ratio(grouped)}."
    by_name = {p.strategy: p for p in chosen.packing}
    bfd, split = by_name["bfd"], by_name["bfd_split"]
    text += f"; packed by bfd the rows are {show_ratio(bfd.fill_ratio)} full: {_n(bfd.rows)} rows "
    text += f"of about {bfd.documents_per_row:.1f} documents, so lower the batch to hold the "
    text += "documents per update"
    if bfd.tokens_kept_ratio < 1.0:
        text += f" (bfd drops {_lost(bfd.tokens_kept_ratio)} of the tokens, bfd_split drops none "
        text += f"and makes {_n(split.rows)} rows)"
    return f"{text}. wrapped lets documents attend to one another."


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


def _lost(kept_ratio: float) -> str:
    """Say what a share kept leaves out, never rounding a loss down to nothing."""
    lost = 1.0 - kept_ratio
    return "less than 0.1 %" if 0 < lost < 0.0005 else show_ratio(lost)


def _n(number: int) -> str:
    return f"{number:,}"
