"""Writes the rows TRL must be given when they are not the user's file as it stands.

Converted rows are copied; rows that must be cut before TRL flattens them are written tokenised.
Anything else trains from where the user has it, and nothing is written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from autotune.core.result import Result
from autotune.emit.location import WRITTEN_ROWS


def write_dataset(result: Result, out_dir: Path) -> Path | None:
    """Write the rows of the chosen candidate below the run's folder.

    Args:
        result: a result with a best trial.
        out_dir: the run's folder.

    Returns:
        The Parquet file, or None when the user's own rows serve.
    """
    best = result.best_trial
    target = out_dir / WRITTEN_ROWS
    if best is None:
        return None
    if best.pretruncate_tokens is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_cut(Path(result.profile.rows_dir), best.pretruncate_tokens, target)
        return target
    if result.profile.converted_file is None:
        return None
    source = Path(result.profile.converted_file)
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        shutil.copyfile(source, part)
        part.replace(target)
    return target


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
