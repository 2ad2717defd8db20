"""What rules and translations look at: the job as resolved, the rows, the machine.

A frozen bundle of values; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autotune.core.environment import Device
from autotune.core.job import Job
from autotune.core.kept import SPLITTING, Documents, Reference, documents, kept_labels
from autotune.core.lengths import IntArray, Lengths
from autotune.core.packing import pack
from autotune.core.positions import Positions


@dataclass(frozen=True)
class Facts:
    """Everything a rule may ask about.

    Args:
        job: what was asked, options with TRL's types.
        defaults: TRL's values for options the user left out.
        device: where it runs.
        lengths: token lengths of the prepared rows.
        positions: how long a sequence the model takes; None when unlimited.
        moe: whether the model routes tokens to experts.
        versions: installed versions by distribution name.
        lacking: why each capability this machine does not have is not there, by the names
            ``autotune.knobs.needs`` and the knob table use.
        traits: what sets the model apart: ``softcap`` and ``dropout`` (of the attention),
            ``no-sdpa``, ``no-flex`` and ``no-flash`` (attention code it cannot run),
            ``no-aux-loss`` (no loss of its own balances its experts).
        unfit_adapters: why PEFT refuses adapters on the model, by
            `autotune.knobs.adapters.adapters_key`.
        host_free_bytes: host memory nobody holds where the device is a GPU of this machine; None
            elsewhere.
    """

    job: Job
    defaults: Mapping[str, Any]
    device: Device
    lengths: Lengths
    positions: Positions | None
    moe: bool
    versions: Mapping[str, str]
    lacking: Mapping[str, str] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    unfit_adapters: Mapping[str, str] = field(default_factory=dict)
    host_free_bytes: int | None = None
    _packed_rows: dict[tuple[int, str], int] = field(default_factory=dict, repr=False)
    _kept_rows: dict[int | None, int] = field(default_factory=dict, repr=False)
    _kept: dict[tuple[int | None, str], tuple[float, Documents]] = field(
        default_factory=dict, repr=False
    )

    def option(self, name: str) -> Any:
        """Return the user's value of an option, else TRL's default."""
        return self.job.options.get(name, self.defaults.get(name))

    @cached_property
    def distinct_lengths(self) -> IntArray:
        """Every token length the rows have, once, ascending: int64[m]."""
        return np.unique(self.lengths.tokens)

    @cached_property
    def trained_tokens(self) -> int:
        """Tokens of all rows that are trained on, uncut."""
        return int(self.lengths.trained.tokens.sum())

    @property
    def streams(self) -> bool:
        """Whether the rows are an iterable that is never all there."""
        return bool(self.option("dataset_streaming") or self.option("streaming"))

    @property
    def longest_tried(self) -> int | None:
        """Longest row that may be tried: the model's positions; None without a limit.

        A model of rotary positions goes on beyond its own, so a ``max_length`` (null too) that the
        user set goes before them.
        """
        limit = self.positions
        theirs = limit is not None and not limit.fixed and "max_length" in self.job.options
        return None if limit is None or theirs else limit.most

    @property
    def reference_length(self) -> int:
        """Length the reference tokens are cut at (DESIGN.md 5.6).

        The user's explicit ``max_length``, else the model's positions, else the longest row.
        """
        longest = self.lengths.longest
        explicit = self.job.options.get("max_length")
        limits = [n for n in (explicit, self.longest_tried) if n is not None]
        return min([longest, *limits])

    @cached_property
    def reference(self) -> Reference:
        """What every share of tokens is a share of: rows cut at `reference_length`.

        Split there where the user's config splits documents at a length of their own.
        """
        own = self.option("packing_strategy") if self.option("packing") else "none"
        explicit = self.job.options.get("max_length") is not None
        return Reference(max(self.reference_length, 1), splits=explicit and own in SPLITTING)

    def kept(self, max_length: int | None, packing: str) -> tuple[float, Documents]:
        """Return the reference's label tokens kept in context, and what becomes of documents.

        Args:
            max_length: the cut, or the length of a packed row; None for none.
            packing: ``none`` or TRL's ``packing_strategy``.
        """
        key = (max_length, packing)
        if key not in self._kept:
            self._kept[key] = (
                kept_labels(self.lengths, *key, self.reference, shards=self.shards),
                documents(self.lengths, *key, shards=self.shards),
            )
        return self._kept[key]

    @property
    def effective_batch(self) -> float:
        """Sequences per optimizer update the user asked for; never more than there are."""
        asked = self.job.effective_batch_sequences
        if asked is None:
            return self.own_batch
        return float(asked if self.streams else min(asked, len(self.lengths.trained)))

    @property
    def own_batch(self) -> float:
        """Sequences per optimizer update of the user's config, as they are realised.

        An update of transformers ends with its epoch, so it never sees more rows than there are. A
        stream begins anew instead, and only its micro-batches are bounded.
        """
        batch = int(self.option("per_device_train_batch_size"))
        accumulation = int(self.option("gradient_accumulation_steps"))
        length, strategy = self.option("max_length"), "none"
        if self.option("packing") and length is not None:
            strategy = str(self.option("packing_strategy"))
        rows = max(1, self.rows_left(length, strategy))
        seen = min(batch, rows) * accumulation
        return (seen if self.streams else min(seen, rows)) * self.documents_per_row(
            length, strategy
        )

    @property
    def drops_last(self) -> bool:
        """Whether a micro-batch that is not full is left out."""
        return bool(self.option("dataloader_drop_last"))

    def rows_left(self, max_length: int | None, strategy: str) -> int:
        """Return how many rows there are to train on.

        Args:
            max_length: what rows are cut to, None for whole rows; tokens of a packed row.
            strategy: TRL's ``packing_strategy``, or ``none``.
        """
        if strategy != "none" and max_length is not None:
            return self.packed_rows(max_length, strategy)
        if max_length not in self._kept_rows:
            self._kept_rows[max_length] = int(self.lengths.trained.kept_rows(max_length).sum())
        return self._kept_rows[max_length]

    def documents_per_row(self, max_length: int | None, strategy: str) -> float:
        """Return the documents of an average row: 1 unless packed; arguments as above."""
        if strategy == "none" or max_length is None:
            return 1.0
        return self.sequences_per_row(max_length, strategy)

    @property
    def shards(self) -> int:
        """Parts TRL packs apart: its ``dataset_num_proc``."""
        return int(self.option("dataset_num_proc") or 1)

    def sequences_per_row(self, max_length: int, strategy: str) -> float:
        """Return the documents of an average packed row.

        Args:
            max_length: tokens of a packed row.
            strategy: TRL's ``packing_strategy``.
        """
        documents = int((self.lengths.trained.tokens > 0).sum())
        return documents / max(1, self.packed_rows(max_length, strategy))

    def packed_rows(self, max_length: int, strategy: str) -> int:
        """Return how many rows packing makes of the data set; arguments as above."""
        key = (max_length, strategy)
        if key not in self._packed_rows:
            self._packed_rows[key] = len(
                pack(self.lengths.trained.tokens, max_length, strategy, shards=self.shards)
            )
        return self._packed_rows[key]
