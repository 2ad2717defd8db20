"""What ``autotune profile`` found: one versioned document from which every format is rendered.

Holds numbers and sentences; they are worked out in ``advice``, and drawn in ``report`` and ``cli``.
"""

from __future__ import annotations

from typing import Literal

from autotune.core.job import Frozen, Trainer
from autotune.core.profile import DatasetProfile, LengthHistogram


class PackingAt(Frozen):
    """What one packing strategy makes of the rows at one ``max_length``.

    Args:
        strategy: TRL's ``packing_strategy``.
        rows: packed rows.
        fill_ratio: share of their capacity that holds tokens, 0..1.
        tokens_kept_ratio: tokens that are still there, 0..1.
        documents_per_row: documents of an average packed row.
        mixes: whether documents can attend to one another in it.
        label_tokens_kept_ratio: label tokens trained with all that comes before them in their
            document, 0..1; None in reports of older versions.
        documents_cut: documents that lose their end.
        documents_split: documents that continue in another row, without their beginning.
    """

    strategy: str
    rows: int
    fill_ratio: float
    tokens_kept_ratio: float
    documents_per_row: float
    mixes: bool
    label_tokens_kept_ratio: float | None = None
    documents_cut: int = 0
    documents_split: int = 0


class LengthAt(Frozen):
    """What one ``max_length`` does to the rows.

    Args:
        max_length: the cut in tokens.
        marks: why it is listed: ``yours``, ``TRL's default``, ``advised``; else empty.
        tokens_kept_ratio: tokens that are still trained on or read, unpacked, 0..1.
        label_tokens_kept_ratio: label tokens that are still trained on, unpacked, 0..1.
        rows_cut: rows that are longer.
        rows_dropped: rows TRL leaves out, unpacked, because nothing of them would be trained on.
        padding_ratio_by_batch: share of computed tokens that is padding, unpacked, by batch size.
        packing: one entry a strategy; empty for trainers that do not pack.
    """

    max_length: int
    marks: tuple[str, ...] = ()
    tokens_kept_ratio: float
    label_tokens_kept_ratio: float
    rows_cut: int
    rows_dropped: int
    padding_ratio_by_batch: dict[int, float]
    packing: tuple[PackingAt, ...] = ()


class Advice(Frozen):
    """Which ``max_length`` to take, and why.

    Args:
        max_length: the shortest that keeps the share of label tokens that was asked for.
        sentences: what holds now first, then the advice, each with its numbers.
    """

    max_length: int
    sentences: tuple[str, ...]


class LengthReport(Frozen):
    """Everything ``autotune profile`` says.

    Args:
        created: when, ISO 8601.
        autotune_version: by which version.
        trainer: whose preparation was run.
        model: whose tokenizer it is.
        dataset: where the rows come from.
        profile: the rows as prepared.
        min_retention_ratio: least share of label tokens the advice keeps.
        histogram: rows by length, fine where most rows are; the last bin holds the rest.
        lengths: what every sensible ``max_length`` does, ascending.
        advice: which to take.
        notices: remarks for the reader, most important first.
    """

    schema_version: Literal[1] = 1
    created: str
    autotune_version: str
    trainer: Trainer
    model: str
    dataset: str
    profile: DatasetProfile
    min_retention_ratio: float
    histogram: LengthHistogram
    lengths: tuple[LengthAt, ...]
    advice: Advice
    notices: tuple[str, ...] = ()
