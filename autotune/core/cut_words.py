"""Says what the user's own ``max_length`` takes from their rows, and which would take nothing.

One sentence or two, for every place that shows it: the plan, ``profile``, ``predict``, the report.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.core.job import Trainer
from autotune.core.kept import (
    SPLITTING,
    Documents,
    Reference,
    documents,
    kept_labels,
    least_length,
    unlabelled_rows,
)
from autotune.core.lengths import Lengths
from autotune.core.units import show_ratio

#: What becomes of rows without a trained token, by how rows are put together.
_BARE = {
    "none": "TRL leaves them out",
    "bfd": "they are packed all the same and trained at a loss of 0",
    "bfd_split": "what is trained of them comes in a later piece, without their prompt",
    "wrapped": "what is trained of them comes in a later row, without their prompt",
}


@dataclass(frozen=True)
class Setting:
    """What the user's config says of ``max_length``.

    Args:
        given: whether it says anything.
        value: what it says; None switches the cut off.
        default: what TRL takes when it says nothing; None cuts nothing.
        packing: ``none`` or the ``packing_strategy`` of their config.
    """

    given: bool
    value: int | None
    default: int | None
    packing: str = "none"

    @property
    def implied(self) -> int | None:
        """The cut TRL would make; None for none."""
        return self.value if self.given else self.default

    @property
    def subject(self) -> str:
        """What to call that cut."""
        whose = "Your max_length" if self.given else "max_length is not set, and TRL's default"
        return f"{whose} of {self.implied}"


def cut_words(
    lengths: Lengths, setting: Setting, trainer: Trainer, positions: int | None = None
) -> str:
    """Return what the user's own length takes from the rows; empty where it takes nothing.

    Args:
        lengths: the rows, uncut.
        setting: what their config says.
        trainer: Reward leaves out longer rows (trl 1.16); the others cut or split them.
        positions: longest sequence the model takes in tokens, None when it has no limit.
    """
    cut, rows = setting.implied, len(lengths)
    if cut is None:
        return ""
    found = documents(lengths, cut, setting.packing)
    if not (lengths.rows_cut(cut) or found.split):
        return ""
    need, longest = least_length(lengths), f"the longest row has {lengths.longest:,}"
    if trainer is Trainer.REWARD:
        lost = show_lost(1.0 - lengths.dropped_ratio(cut))
        return (
            f"{setting.subject} leaves out {found.left_out:,} of {rows:,} rows, which are longer, "
            f"and {lost} of all tokens; {need}{_beyond(need, positions)} would keep every row."
        )
    text = f"{setting.subject} {_taken(lengths, cut, setting, found)} ({longest})."
    bare = int(unlabelled_rows(lengths, cut).sum())
    if bare:
        splits = setting.packing in SPLITTING
        where = f"in their first {cut} tokens" if splits else f"at max_length {cut}"
        text += (
            f" {bare:,} of {rows:,} rows have no trained token {where} ({_BARE[setting.packing]}); "
            f"{need}{_beyond(need, positions)} would keep one in every row."
        )
    return text


def _taken(lengths: Lengths, cut: int, setting: Setting, found: Documents) -> str:
    """Say what is cut or split, and how much that takes."""
    rows, labels = len(lengths), max(lengths.labels_kept(None), 1)
    if setting.packing in SPLITTING:
        whole = Reference(max(lengths.longest, 1))
        kept = kept_labels(lengths, cut, setting.packing, whole) / labels
        return (
            f"splits {found.split:,} of {rows:,} rows (packing {setting.packing}), and "
            f"{show_ratio(kept)} of the label tokens keep all that comes before them"
        )
    kept_ratio = lengths.labels_kept(cut) / labels
    tokens = 1.0 - lengths.dropped_ratio(cut)
    if setting.packing != "none":
        tokens = int(lengths.cut(cut).sum()) / max(lengths.total, 1)
    return (
        f"cuts {lengths.rows_cut(cut):,} of {rows:,} rows and drops {show_lost(tokens)} of all "
        f"tokens, {show_lost(kept_ratio)} of the label tokens"
    )


def _beyond(need: int, positions: int | None) -> str:
    """Say where the model does not reach a length."""
    if positions is None or need <= positions:
        return ""
    return f" (more than the model's {positions} positions)"


def show_lost(kept_ratio: float) -> str:
    """Say what a share kept leaves out, never rounding a loss down to nothing."""
    lost = 1.0 - kept_ratio
    return "less than 0.1 %" if 0 < lost < 0.0005 else show_ratio(lost)
