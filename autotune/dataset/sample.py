"""Takes a bounded number of rows where not all can be had or are wanted, and says how many.

Of a stream the first rows are taken, because it has no others without reading it all; of a table
rows spread evenly and the last ones.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.job import DatasetSource
from autotune.core.profile import Notice
from autotune.dataset.load import load_rows
from autotune.dataset.scan import sampled_rows

if TYPE_CHECKING:
    from datasets import Dataset

#: Rows taken of a stream when nobody says how many.
STREAM_ROWS = 20_000


@dataclass(frozen=True)
class Sample:
    """Hold the rows that are prepared.

    Args:
        rows: a table in memory or on disk.
        fingerprint: equal exactly when the rows are.
        notices: what is to be said when these are not all rows.
    """

    rows: Dataset
    fingerprint: str
    notices: tuple[Notice, ...] = ()


def sample_of(
    source: DatasetSource,
    split: str,
    most_rows: int | None,
    *,
    cache_dir: Path,
    stream: bool = False,
) -> Sample:
    """Load a split, or a bounded sample of it.

    Args:
        source: where the rows come from.
        split: name of the split.
        most_rows: most rows to take; None takes all, of a stream ``STREAM_ROWS``.
        cache_dir: private folder for Arrow copies of local files.
        stream: read it as a stream.

    Raises:
        BadInput: as ``load_rows``.
    """
    if not stream:
        rows = load_rows(source, split, cache_dir=cache_dir)
        print_ = str(rows._fingerprint)
        if most_rows is None or len(rows) <= most_rows:
            return Sample(rows, print_)
        taken = rows.select(sampled_rows(len(rows), most_rows))
        return Sample(taken, print_, (_of_table(most_rows, len(rows)),))
    most = STREAM_ROWS if most_rows is None else most_rows
    rows = load_rows(source, split, cache_dir=cache_dir, first=most + 1)
    more = len(rows) > most
    rows = rows.select(range(min(most, len(rows))))
    return Sample(rows, _hash_of(rows), (_of_stream(len(rows), more),))


def _of_table(taken: int, total: int) -> Notice:
    return Notice(
        code="sampled-rows",
        count=taken,
        message=f"{taken:,} of {total:,} rows were looked at, spread evenly with the last ones; "
        "row numbers count within them, and a longer row may be among the others.",
    )


def _of_stream(taken: int, more: bool) -> Notice:
    rest = (
        "what follows was not looked at, and a longer row may be in it"
        if more
        else "it has no more"
    )
    return Notice(
        code="sampled-stream",
        count=taken,
        message=f"the rows are a stream: its first {taken:,} were taken and prepared as a table; "
        f"{rest}.",
    )


def _hash_of(rows: Dataset) -> str:
    digest = hashlib.sha256(json.dumps(str(rows.features)).encode())
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, default=str).encode())
    return digest.hexdigest()
