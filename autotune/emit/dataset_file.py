"""Writes the rows TRL must be given when they are not the user's file as it stands.

Converted rows are copied; rows that must be cut before TRL flattens them are written tokenised. The
rows evaluation uses are written beside them where the configuration evaluates. Anything else trains
from where the user has it, and nothing is written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from autotune.core.profile import DatasetProfile
from autotune.core.result import Result
from autotune.emit.location import WRITTEN_ROWS, WRITTEN_TEST_ROWS, has_test_file


def write_dataset(result: Result, out_dir: Path) -> Path | None:
    """Write the rows of the chosen candidate below the run's folder.

    Args:
        result: a result with a best trial.
        out_dir: the run's folder.

    Returns:
        The Parquet file of the train rows, or None when the user's own rows serve.
    """
    best = result.best_trial
    if best is None:
        return None
    cut = best.pretruncate_tokens
    if cut is None and result.profile.converted_file is None:
        return None
    _write(result.profile, cut, out_dir / WRITTEN_ROWS)
    if result.eval_profile is not None and has_test_file(result):
        _write(result.eval_profile, cut, out_dir / WRITTEN_TEST_ROWS)
    return out_dir / WRITTEN_ROWS


def _write(profile: DatasetProfile, cut: int | None, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    stamp = target.with_suffix(".made-of")
    made_of = f"{profile.fingerprint} {cut}"
    if target.exists() and stamp.exists() and stamp.read_text("utf-8") == made_of:
        return
    stamp.unlink(missing_ok=True)
    if cut is not None:
        _write_cut(Path(profile.rows_dir), cut, target)
        stamp.write_text(made_of, encoding="utf-8")
        return
    if profile.converted_file is None:
        return
    source = Path(profile.converted_file)
    part = target.with_suffix(".part")
    shutil.copyfile(source, part)
    part.replace(target)
    stamp.write_text(made_of, encoding="utf-8")


def _write_cut(rows_dir: Path, length: int, target: Path) -> None:
    """Cut tokenised rows to ``length`` and leave out those without a label, as TRL does."""
    import datasets

    datasets.disable_progress_bars()
    rows = datasets.load_from_disk(str(rows_dir)).select_columns(["input_ids", "labels"])
    cut = rows.map(
        lambda row: {"input_ids": row["input_ids"][:length], "labels": row["labels"][:length]},
        keep_in_memory=True,
    )
    kept = cut.filter(
        lambda row: any(label != -100 for label in row["labels"]), keep_in_memory=True
    )
    part = target.with_suffix(".part")
    kept.to_parquet(part)
    part.replace(target)
