"""Where the emitted configuration finds its rows, in the words of TRL's command line.

Looks at the names of files and, for a folder, at whether ``save_to_disk`` wrote it; reads no rows.
"""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.job import DatasetSource
from autotune.core.result import Result, TrialRecord
from autotune.dataset.builders import builder_of, data_suffix

#: The reason of a location that needs none.
AS_GIVEN = "as given"
#: A split's name alone; ``train[:10%]`` and ``a+b`` are instructions and not keys of the rows.
_SPLIT_NAME = re.compile(r"^\w+$")
#: Files below the run's own folder that hold rows autotune had to write.
WRITTEN_ROWS = Path("dataset") / "train.parquet"
WRITTEN_TEST_ROWS = Path("dataset") / "test.parquet"


@dataclass(frozen=True)
class Location:
    """Say where rows are.

    Args:
        options: keys of the TRL YAML, without those that are TRL's default.
        reason: why they differ from what the user wrote.
        lacks_test: whether evaluation has no rows there, although TRL would ask for them.
    """

    options: dict[str, Any]
    reason: str
    lacks_test: bool = False

    @property
    def blocks(self) -> list[dict[str, Any]] | None:
        """The ``datasets:`` block, or None when rows have a name."""
        return self.options.get("datasets")

    @property
    def train_split(self) -> str:
        """The key of the loaded rows that are trained on."""
        return str(self.options.get("dataset_train_split", "train"))

    @property
    def test_split(self) -> str:
        """The key of the loaded rows that are evaluated on."""
        return str(self.options.get("dataset_test_split", "test"))


def written_rows(result: Result) -> Path:
    """Return the Parquet file that holds converted or pre-truncated rows of a run."""
    return Path(result.out_dir).expanduser().absolute() / WRITTEN_ROWS


def locate_rows(result: Result, trial: TrialRecord, evaluates: bool) -> Location:
    """Say where the rows of a trial come from.

    Args:
        result: the run.
        trial: the trial that is emitted.
        evaluates: whether the configuration evaluates while it trains.
    """
    source = result.job.dataset
    if trial.pretruncate_tokens is not None or result.profile.converted_file is not None:
        return _written(result, trial, evaluates)
    if source.blocks is not None:
        return Location({"datasets": [dict(b) for b in source.blocks]}, AS_GIVEN)
    path = Path(source.path).expanduser()
    local = _local_blocks(path, source.train_split)
    if local is not None:
        options: dict[str, Any] = {"datasets": local}
        if evaluates and source.test_split == source.train_split:
            options["dataset_test_split"] = "train"
        lacks = evaluates and len(options) == 1 and not _on_train_rows(result)
        return Location(options, "TRL reads local files as a block", lacks)
    name = str(path.absolute()) if path.is_dir() else source.path
    if _SPLIT_NAME.match(source.train_split):
        return Location(_named(name, source), AS_GIVEN)
    part: dict[str, Any] = {"path": name, "name": source.config, "split": source.train_split}
    block = {k: v for k, v in part.items() if v is not None}
    return Location({"datasets": [block]}, "part of a split, read as a block", evaluates)


def _local_blocks(path: Path, split: str) -> list[dict[str, Any]] | None:
    """Return the blocks of a data file or a ``save_to_disk`` folder, None for anything else."""
    builder = None if path.is_dir() else builder_of(path)
    if builder is not None and data_suffix(path) == ".tsv":
        # TRL can name no separator; the library finds it by the ending of a folder's file.
        folder = str(path.absolute().parent)
        return [{"path": folder, "data_files": _pattern(path), "split": split}]
    if builder is not None:
        return [{"path": builder, "data_files": _pattern(path), "split": split}]
    if (path / "state.json").is_file():
        return [{"path": "arrow", "data_files": f"{_pattern(path)}/*.arrow", "split": split}]
    if (path / "dataset_dict.json").is_file():
        return [_saved_split(path, part) for part in split.split("+")]
    return None


def _named(name: str, source: DatasetSource) -> dict[str, Any]:
    options = {
        "dataset_name": name,
        "dataset_config": source.config,
        "dataset_train_split": source.train_split if source.train_split != "train" else None,
        "dataset_test_split": source.test_split if source.test_split != "test" else None,
    }
    return {k: v for k, v in options.items() if v is not None}


def _saved_split(folder: Path, split: str) -> dict[str, Any]:
    """Read one split of a saved ``DatasetDict``; ``validation[:10]`` is a part of one."""
    name, bracket, rest = split.strip().partition("[")
    files = f"{_pattern(folder / name)}/*.arrow"
    return {"path": "arrow", "data_files": files, "split": f"train{bracket}{rest}"}


def _written(result: Result, trial: TrialRecord, evaluates: bool) -> Location:
    file = written_rows(result)
    if trial.pretruncate_tokens is not None:
        reason = f"rows cut to {trial.pretruncate_tokens} tokens, which TRL does not do here"
    else:
        reason = f"rows converted: {result.profile.conversion}"
    if evaluates and has_test_file(result):
        # A datasets: block only ever has a train split, a folder has one split per file.
        return Location({"dataset_name": str(file.parent)}, reason)
    options: dict[str, Any] = {
        "datasets": [{"path": "parquet", "data_files": _pattern(file), "split": "train"}]
    }
    if evaluates and result.job.dataset.test_split == result.job.dataset.train_split:
        options["dataset_test_split"] = "train"
    return Location(options, reason)


def has_test_file(result: Result) -> bool:
    """Return whether rows to evaluate on are written beside those that are trained on.

    They are not where evaluation uses train rows, or rows TRL holds out of them.
    """
    if result.eval_profile is None:
        # a result of an older version; it named the folder whenever the rows had a name
        return not result.job.dataset.blocks
    return not _on_train_rows(result)


def _on_train_rows(result: Result) -> bool:
    """Return whether evaluation uses rows that are among those trained on as they were loaded."""
    test = result.eval_profile
    return test is not None and test.rows_dir == result.profile.rows_dir


def _pattern(path: Path) -> str:
    """Return the absolute path as ``datasets`` wants it: a pattern, so brackets are escaped."""
    return glob.escape(str(path.absolute()))
