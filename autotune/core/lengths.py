"""How long every prepared row is, uncut, and what a cut at ``max_length`` keeps of them.

Holds arrays and counting; it does not tokenise, pack or sample. The preparing child writes the
arrays as ``lengths.npz`` beside the profile; everybody else reads them from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from autotune.core.errors import ToolFailure

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

#: The quantiles a profile states, by the name they have there.
QUANTILES = {"0.5": 0.5, "0.9": 0.9, "0.95": 0.95, "0.99": 0.99, "1.0": 1.0}
#: At most this many lengths are proposed: each multiplies the search.
MOST_CHOICES = 5
#: A choice this near to the next larger one would only measure it twice.
_APART = 0.97

_REQUIRED = ("tokens", "labels", "label_positions")
_OPTIONAL = ("first_labels", "real", "chosen", "rejected")


@dataclass(frozen=True, eq=False)
class Lengths:
    """Hold the lengths of n prepared rows, uncut, in the order TRL trains them unshuffled.

    Args:
        tokens: int64[n], tokens of every row. For preference rows the longer of
            prompt+chosen and prompt+rejected.
        labels: int64[n], tokens of every row that are trained on (label is not -100).
        label_positions: int64[p], for every position the number of rows with a label there.
        first_labels: int64[n], position of a row's first label, ``tokens`` when it has none; None
            when every row's labels start at 0.
        real: int64[n], tokens of every row that are not padding; None when no row is pre-padded.
        chosen: int64[n], prompt+chosen tokens of preference rows, else None.
        rejected: int64[n], prompt+rejected tokens of preference rows, else None.
        drops_longer: whether rows beyond ``max_length`` are left out instead of cut (Reward).
        held_out: how many of the n are held out for evaluation; TRL draws them anew each time.
    """

    tokens: IntArray
    labels: IntArray
    label_positions: IntArray
    first_labels: IntArray | None = None
    real: IntArray | None = None
    chosen: IntArray | None = None
    rejected: IntArray | None = None
    drops_longer: bool = False
    held_out: int = 0

    def __post_init__(self) -> None:
        for name in ("labels", "first_labels", "real", "chosen", "rejected"):
            array = getattr(self, name)
            if array is not None and len(array) != len(self.tokens):
                raise ToolFailure(
                    f"lengths disagree: {len(self.tokens)} rows have tokens, {len(array)} {name}."
                )

    @classmethod
    def read(cls, path: Path | str) -> Lengths:
        """Read the arrays a preparing child wrote.

        Args:
            path: the ``.npz`` file; int32 arrays become int64.

        Raises:
            ToolFailure: the file is missing or is not such an archive.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {
                    name: archive[name].astype(np.int64)
                    for name in (*_REQUIRED, *_OPTIONAL)
                    if name in archive.files
                }
                drops_longer = "drops_longer" in archive.files and bool(archive["drops_longer"])
            return cls(**arrays, drops_longer=drops_longer)
        except (OSError, EOFError, ValueError, TypeError, BadZipFile) as error:
            raise ToolFailure(f"{path} holds no row lengths: {error}") from error

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest row; 0 without rows."""
        return int(self.tokens.max(initial=0))

    @property
    def total(self) -> int:
        """Tokens of all rows, of preference rows those of both sides together."""
        if self.chosen is None or self.rejected is None:
            return int(self.tokens.sum())
        return int(self.chosen.sum() + self.rejected.sum())

    @property
    def longest_row(self) -> int:
        """Index of the longest row, the first of several; there must be one."""
        return int(self.tokens.argmax())

    @cached_property
    def trained(self) -> Lengths:
        """The rows of one pass: all but as many as are held out, spread evenly over the lengths.

        Labels by position are those of all rows in proportion.
        """
        if not self.held_out:
            return self
        rows = len(self) - self.held_out
        evenly = ((np.arange(rows) + 0.5) * len(self) / rows).astype(np.int64)
        taken = np.sort(np.argsort(self.tokens, kind="stable")[evenly])

        def of(array: IntArray | None) -> IntArray | None:
            return None if array is None else array[taken]

        return replace(
            self,
            tokens=self.tokens[taken],
            labels=self.labels[taken],
            label_positions=np.rint(self.label_positions * (rows / len(self))).astype(np.int64),
            first_labels=of(self.first_labels),
            real=of(self.real),
            chosen=of(self.chosen),
            rejected=of(self.rejected),
            held_out=0,
        )

    @cached_property
    def _label_totals(self) -> IntArray:
        """Labels that a cut at every length keeps: int64[p + 1]."""
        kept = self.label_positions
        if self.drops_longer:  # a row's labels are all kept from its own length on
            kept = np.zeros(self.longest, dtype=np.int64)
            np.add.at(kept, np.maximum(self.tokens, 1) - 1, self.labels)
        totals: IntArray = np.zeros(len(kept) + 1, dtype=np.int64)
        np.cumsum(kept, out=totals[1:])
        return totals

    def quantiles(self) -> dict[str, int]:
        """Return the token length at each of ``QUANTILES``: always the length of a real row."""
        if not len(self):
            return {}
        at = np.quantile(self.tokens, list(QUANTILES.values()), method="inverted_cdf")
        return {name: int(value) for name, value in zip(QUANTILES, at, strict=True)}

    def cut(self, max_length: int | None) -> IntArray:
        """Return int64[n], the tokens of every row after a cut at ``max_length`` (None: no cut)."""
        if max_length is None:
            return self.tokens
        cut: IntArray = np.minimum(self.tokens, max_length)
        return cut

    def useful(self, max_length: int | None) -> IntArray:
        """Return int64[n], tokens that are not padding after the cut (rows padded on the right)."""
        return (
            self.cut(max_length)
            if self.real is None
            else np.minimum(self.real, self.cut(max_length))
        )

    def kept_rows(self, max_length: int | None) -> BoolArray:
        """Return bool[n], rows TRL still trains on: unpacked, it drops those left without a label.

        Without a ``max_length`` TRL drops nothing (trl 1.16, ``SFTTrainer._prepare_dataset``).
        Reward drops what is longer (``RewardTrainer._prepare_dataset``).
        """
        if max_length is None:
            return np.ones(len(self), dtype=np.bool_)
        if self.drops_longer:
            return self.tokens <= max_length
        first = 0 if self.first_labels is None else self.first_labels
        return (self.labels > 0) & (first < self.cut(max_length))

    def labels_within(self, max_length: int | None) -> IntArray:
        """Return int64[n], label tokens of every row after the cut.

        Exact where a row's labels follow one another (a completion, plain text); where masked
        turns lie between them it is an upper bound. ``labels_kept`` is exact always.
        """
        if max_length is None:
            return self.labels
        first = 0 if self.first_labels is None else self.first_labels
        if self.drops_longer:
            return np.where(self.tokens <= max_length, self.labels, 0)
        if self.chosen is not None and self.rejected is not None:
            cut = [np.minimum(side, max_length) for side in (self.chosen, self.rejected)]
            both: IntArray = np.maximum(cut[0] - first, 0) + np.maximum(cut[1] - first, 0)
            return both
        within: IntArray = np.minimum(self.labels, np.maximum(self.cut(max_length) - first, 0))
        return within

    def both_sides(self, max_length: int | None) -> IntArray:
        """Return int64[n], tokens the model reads of every row after the cut, padding left out.

        Of preference rows those of both sides together; they share a prompt, which is read twice.
        """
        if self.chosen is None or self.rejected is None:
            return self.useful(max_length)
        if max_length is None:
            return self.chosen + self.rejected
        chosen: IntArray = np.minimum(self.chosen, max_length)
        return chosen + np.minimum(self.rejected, max_length)

    def labels_kept(self, max_length: int | None) -> int:
        """Return the label tokens of all rows that survive the cut, exactly."""
        if max_length is None:
            return int(self._label_totals[-1])
        return int(self._label_totals[min(max(max_length, 0), len(self._label_totals) - 1)])

    def tokens_kept(self, max_length: int | None) -> int:
        """Return the tokens of all rows TRL trains on after the cut, unpacked."""
        return int(self.cut(max_length)[self.kept_rows(max_length)].sum())

    def dropped_ratio(self, max_length: int | None) -> float:
        """Return the share of the tokens the model would read that the cut drops, unpacked, 0..1.

        Rows TRL leaves out count whole; preference rows count both their sides.
        """
        total = int(self.both_sides(None).sum())
        kept = int(self.both_sides(max_length)[self.kept_rows(max_length)].sum())
        return 1.0 - kept / total if total else 0.0

    def rows_cut(self, max_length: int | None) -> int:
        """Return how many rows are longer than ``max_length``."""
        return 0 if max_length is None else int((self.tokens > max_length).sum())

    def rows_dropped(self, max_length: int | None) -> int:
        """Return how many rows TRL leaves out, unpacked, because the cut takes all their labels."""
        return int((~self.kept_rows(max_length)).sum())

    def retention_ratio(self, max_length: int | None, reference: int | None = None) -> float:
        """Return the share of the reference's label tokens that the cut keeps, 0..1.

        Args:
            max_length: the cut in tokens, None for none.
            reference: the cut the share is held against, None for the whole rows.
        """
        whole = self.labels_kept(reference)
        return 1.0 if whole == 0 else min(self.labels_kept(max_length) / whole, 1.0)

    def max_length_choices(
        self, positions: int | None, min_retention_ratio: float, explicit: int | None
    ) -> list[int]:
        """Return the sensible ``max_length`` values, ascending, at most ``MOST_CHOICES``.

        The shortest keeps just ``min_retention_ratio`` of the reference's label tokens, the longest
        cuts nothing the limits let through; between them lie lengths that halve the loss, and a
        tenth of it. Values are multiples of 8, 64 or 128 (tensor core tiles) by how long rows are,
        except where a limit itself is not; of two within 3 % the larger stands for both.

        Args:
            positions: longest sequence the model takes in tokens, None when it has no limit.
            min_retention_ratio: least share of the reference's label tokens to keep, 0..1.
            explicit: the user's own ``max_length``, which is the reference and never exceeded;
                it, or the positions where they are lower, is among the choices.
        """
        limits = [limit for limit in (positions, explicit) if limit is not None]
        limit = min(limits) if limits else None
        longest = max(self.longest, 1)
        reference = longest if limit is None else min(limit, longest)
        step = 8 if reference <= 256 else 64 if reference <= 2048 else 128
        loss = 1.0 - min_retention_ratio
        goals = [min_retention_ratio, 1.0 - loss / 2, 1.0 - loss / 10, 1.0]
        whole = self.labels_kept(reference)
        found = set() if limit is None or explicit is None else {limit}
        for goal in goals:
            # the small slack keeps 0.99 * 100 from asking for a 100th token in binary fractions
            need = np.ceil(goal * whole - 1e-9)
            enough = int(np.searchsorted(self._label_totals, need, side="left"))
            exact = max(min(enough, reference), 1) if goal < 1.0 else reference
            rounded = -(-exact // step) * step
            found.add(rounded if limit is None else min(rounded, limit))
        kept: list[int] = []
        for choice in sorted(found, reverse=True):
            if not kept or choice <= _APART * kept[-1]:
                kept.append(choice)
        return kept[MOST_CHOICES - 1 :: -1]
