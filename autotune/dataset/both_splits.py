"""Prepares the rows a job trains on and, where its config evaluates, those it evaluates on.

Decides which rows have to be written because TRL cannot be told where they are; how they are
prepared is ``prepare``'s matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource
from autotune.core.profile import DatasetProfile
from autotune.dataset.load import is_tabbed
from autotune.dataset.prepare import prepare, streams

#: Folder below that of the train rows for the rows evaluation uses.
EVAL_DIR = "eval"
_TABS = "written as Parquet, because TRL cannot be told that columns are separated by tabs"
_APART = "written with the test rows, because TRL finds no test split beside rows of this kind"
_TOGETHER = "written as Parquet beside the other split, which was converted"


def prepare_job(
    source: DatasetSource,
    *,
    options: Mapping[str, Any],
    out_dir: Path,
    train_only: bool = False,
    **how: Any,
) -> tuple[DatasetProfile, DatasetProfile | None]:
    """Prepare the train rows and, when the config evaluates, the test rows.

    Args:
        source: where the rows come from.
        options: TRL options, upstream spelling, final types.
        out_dir: folder for the train rows; test rows go below it into ``EVAL_DIR``.
        train_only: nothing is emitted: look at the train rows alone and write none for TRL.
        how: what `prepare` takes besides.

    Returns:
        The profiles of both; the second is None when the config does not evaluate, and the first
        once more when it evaluates on rows held out of those it trains on.

    Raises:
        BadInput: anything wrong with the rows; no test split, although the config evaluates.
        NotBuiltYet: a trainer or kind of rows this version cannot prepare.
    """
    given = {"options": options, **how}
    if train_only:
        return prepare(source, out_dir=out_dir, **given), None
    because = _TABS if is_tabbed(source) else None
    strategy = options.get("eval_strategy")
    strategy = getattr(strategy, "value", strategy)  # TRL's parser makes an enum of it
    if strategy in (None, "no", False):
        profile = prepare(source, out_dir=out_dir, write_because=because, **given)
        _check_stream(profile, options)
        return profile, None
    held_out = options.get("test_split_size") is not None and _is_block(source)
    if held_out and streams(options):
        raise BadInput(
            "test_split_size cannot hold rows out of a stream.", "Leave streaming out, or the size."
        )
    if held_out or source.test_split == source.train_split:
        profile = prepare(source, out_dir=out_dir, write_because=because, **given)
        if held_out:
            _check_share(options["test_split_size"], profile.rows_given)
        _check_stream(profile, options)
        return profile, profile
    because = because or (_APART if _lacks_test(source) else None)
    given["uniform"] = True
    train = prepare(source, out_dir=out_dir, write_because=because, **given)
    test = _test_rows(source, out_dir, because, str(strategy), given)
    if (train.converted_file is None) != (test.converted_file is None):
        if train.converted_file is None:
            train = prepare(source, out_dir=out_dir, write_because=_TOGETHER, **given)
        else:
            test = _test_rows(source, out_dir, _TOGETHER, str(strategy), given)
    _check_stream(train, options)
    return train, test


def _test_rows(
    source: DatasetSource,
    out_dir: Path,
    because: str | None,
    strategy: str,
    given: Mapping[str, Any],
) -> DatasetProfile:
    try:
        return prepare(
            source,
            split=source.test_split,
            out_dir=out_dir / EVAL_DIR,
            write_because=because,
            **given,
        )
    except BadInput as error:
        raise BadInput(
            f"eval_strategy is {strategy!r}, and the rows to evaluate on cannot be used: "
            f"{error.message}",
            "Name them with --dataset-test-split, hold some out of a file's rows with "
            "--set test_split_size=0.1, or switch evaluation off.",
        ) from error


def held_out_rows(
    source: DatasetSource, options: Mapping[str, Any], profile: DatasetProfile
) -> int:
    """Return how many of the rows used TRL holds out of training (``test_split_size``).

    It divides what it reads by a ``datasets:`` block, whether the config evaluates or not.

    Args:
        source: where the rows come from.
        options: TRL options, upstream spelling, final types.
        profile: the rows.

    Raises:
        BadInput: nothing would be left on one side.
    """
    size = options.get("test_split_size")
    if size is None or not (_is_block(source) or profile.converted_file is not None):
        return 0
    _check_share(size, profile.rows_given)
    share: float = size if size < 1 else size / profile.rows_given
    return min(math.ceil(share * profile.rows_used), profile.rows_used - 1)


def _check_share(size: float, rows: int) -> None:
    """Check that rows are left on both sides of ``test_split_size``.

    Raises:
        BadInput: it is neither a share nor a number of rows there are.
    """
    if 0 < size < 1 or (isinstance(size, int) and 0 < size < rows):
        return
    raise BadInput(
        f"test_split_size is {size!r}, expected a share between 0 and 1 or fewer rows than the "
        f"{rows} there are.",
        "E.g. --set test_split_size=0.1.",
    )


def _is_block(source: DatasetSource) -> bool:
    """Return whether TRL will read the rows by a ``datasets:`` block, which it can divide."""
    return source.blocks is not None or Path(source.path).is_file() or _is_saved(source)


def _is_saved(source: DatasetSource) -> bool:
    folder = Path(source.path)
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _lacks_test(source: DatasetSource) -> bool:
    """Return whether TRL's own loading would give no test split under the name it has here."""
    named = all(re.fullmatch(r"\w+", split) for split in (source.train_split, source.test_split))
    return _is_block(source) or not named


def _check_stream(profile: DatasetProfile, options: Mapping[str, Any]) -> None:
    """Stop where the rows TRL should train on would be the sample alone.

    Raises:
        BadInput: a stream that has to be converted.
    """
    if streams(options) and profile.converted_file is not None:
        raise BadInput(
            f"the rows are a stream and would have to be converted: {profile.conversion}.",
            "Leave dataset_streaming out, so that all rows are converted, or convert them first.",
        )
