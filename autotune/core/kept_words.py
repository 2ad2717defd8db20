"""What a trial keeps of the rows, in words that name what every share is a share of."""

from __future__ import annotations

from autotune.core.job import Job, Trainer
from autotune.core.kept import SPLITTING, Documents
from autotune.core.profile import DatasetProfile
from autotune.core.result import Result, TrialRecord
from autotune.core.units import show_ratio


def reference_words(job: Job, profile: DatasetProfile) -> str:
    """Return which label tokens a share kept is a share of, to stand after "label tokens".

    Args:
        job: what was asked.
        profile: the rows.
    """
    own, options = job.options.get("max_length"), job.options
    longest, positions = profile.quantiles.get("1.0", 0), profile.model_positions
    if own is not None and options.get("packing") and _splits(options.get("packing_strategy")):
        return f"in your own pieces of {own} tokens"
    if own is not None and own < min(longest, positions or longest):
        return f"within your max_length of {own}"
    if positions is not None and positions < longest:
        return f"within the model's {positions} positions"
    return "of the whole documents"


def kept_words(result: Result, trial: TrialRecord) -> str:
    """Say how much of the reference's label tokens a trial keeps; empty unmeasured."""
    found = result.estimate_of(trial.candidate.key) or trial.estimate
    if found is None:
        return ""
    kept = f"keeps {show_ratio(found.retention_ratio)} of the label tokens"
    words = f"{kept} {reference_words(result.job, result.profile)}"
    return words if found.rows_split is None else f"{words}, with all that comes before them"


def lost_words(result: Result, trial: TrialRecord) -> str:
    """Say how many documents a trial trains whole, cuts, splits and leaves out; empty unmeasured.

    And what share of all their tokens is dropped.
    """
    found = trial.estimate
    if found is None:
        return ""
    rows, split = result.profile.rows_used, found.rows_split or 0
    whole = rows - found.rows_cut - split
    reward = result.job.trainer is Trainer.REWARD
    parts = [f"{whole:,} of {rows:,} documents whole"]
    if found.rows_cut or not split:
        parts.append(f"{found.rows_cut:,} {'left out' if reward else 'cut'}")
    if found.rows_dropped and not reward:
        parts[-1] += f" ({found.rows_dropped:,} of them left out: no token to train on remains)"
    if split or (found.rows_split is not None and not reward):
        parts.append(f"{split:,} split")
    if found.rows_unlabelled:
        parts.append(f"{found.rows_unlabelled:,} without a token to train on before that")
    length, own = trial.candidate.get("max_length"), result.job.options.get("max_length")
    whose = f"your max_length of {own} drops" if own is not None and own == length else "drops"
    dropped = f"{whose} {show_ratio(found.tokens_dropped_ratio)} of all tokens in the rows"
    return f"{', '.join(parts)}; {dropped}"


def documents_words(found: Documents) -> str:
    """Return what becomes of documents, counts of nothing left out."""
    parts = [f"{found.whole:,} whole"]
    for count, what in (
        (found.cut, "cut"),
        (found.split, "split"),
        (found.left_out, "left out"),
        (found.unlabelled, "without a token to train on before that"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    return f"of {found.total:,} documents {', '.join(parts)}"


def _splits(strategy: object) -> bool:
    return strategy in SPLITTING
