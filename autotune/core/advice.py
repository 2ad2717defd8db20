"""Says which ``max_length`` to take and why; what each one does is worked out in ``length_table``.

Pure functions of lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.cut_words import Setting, cut_words, show_lost
from autotune.core.job import Trainer
from autotune.core.length_report import Advice, LengthAt
from autotune.core.lengths import Lengths
from autotune.core.shapes import shapes_of_pass
from autotune.core.units import show_ratio

#: Batch size the padding sentence speaks of: TRL's default.
_BATCH = 8
#: From this share of padding on, packing or grouping is worth a sentence of advice.
_MUCH_PADDING = 0.10


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
        _implied(lengths, setting, trainer, positions),
        _choice(chosen, shorter[-1] if shorter else None, lengths, setting, trainer, positions),
        _padding(chosen, lengths, trainer),
    ]
    return Advice(max_length=chosen.max_length, sentences=tuple(s for s in sentences if s))


def _implied(lengths: Lengths, setting: Setting, trainer: Trainer, positions: int | None) -> str:
    cut = setting.implied
    if cut is None:
        how = "is off" if setting.given else "is not set and TRL sets none"
        return (
            f"max_length {how}: no row is cut, and the longest row ({_n(lengths.longest)} tokens) "
            "decides the memory of the worst batch."
        )
    found = cut_words(lengths, setting, trainer, positions)
    return (
        found
        or f"{setting.subject} cuts nothing: the longest row has {_n(lengths.longest)} tokens."
    )


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
        text += f" (bfd drops {show_lost(bfd.tokens_kept_ratio)} of all tokens; bfd_split drops "
        text += f"none, makes {_n(split.rows)} rows and splits {_n(split.documents_split)} "
        text += "documents, whose later pieces do not see their beginning)"
    return f"{text}. wrapped lets documents attend to one another."


def _n(number: int) -> str:
    return f"{number:,}"
