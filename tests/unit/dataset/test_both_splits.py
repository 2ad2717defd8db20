"""How many rows may be held out of a file for evaluation, and how many are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource
from autotune.dataset.both_splits import _check_share, held_out_rows
from tests.support.results import profile


@pytest.mark.parametrize("size", [0.1, 0.999, 1, 23])
def test_a_share_or_a_number_of_rows_that_leaves_some_is_taken(size: float) -> None:
    _check_share(size, 24)


@pytest.mark.parametrize("size", [0, 0.0, 1.0, 1.5, -0.1, 24, 99, -3])
def test_one_that_leaves_a_side_without_rows_is_bad_input(size: float) -> None:
    with pytest.raises(BadInput, match="fewer rows than the 24 there are"):
        _check_share(size, 24)


BLOCK = DatasetSource(path="json", blocks=({"path": "json", "data_files": "a.json"},))
HUB = DatasetSource(path="acme/rows")
ROWS = profile(rows_given=100, rows_used=90)


@pytest.mark.parametrize(
    ("expected", "source", "options", "rows"),
    [
        (18, BLOCK, {"test_split_size": 0.2}, ROWS),
        (19, BLOCK, {"test_split_size": 0.201}, ROWS),
        (45, BLOCK, {"test_split_size": 50}, ROWS),
        (0, BLOCK, {}, ROWS),
        (0, HUB, {"test_split_size": 0.2}, ROWS),
        (18, HUB, {"test_split_size": 0.2}, ROWS.model_copy(update={"converted_file": "x"})),
        (89, BLOCK, {"test_split_size": 0.999}, ROWS),
    ],
)
def test_what_trl_holds_out_of_a_block_is_counted(
    expected: int, source: DatasetSource, options: dict[str, Any], rows: Any
) -> None:
    rows = rows if rows is not ROWS else ROWS.model_copy(update={"converted_file": None})
    assert expected == held_out_rows(source, options, rows)


def test_a_local_file_becomes_a_block_and_is_divided_too(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    source = DatasetSource(path=str(tmp_path / "rows.jsonl"))
    assert 9 == held_out_rows(source, {"test_split_size": 0.1}, ROWS)
    with pytest.raises(BadInput, match=r"test_split_size is 1\.5"):
        held_out_rows(source, {"test_split_size": 1.5}, ROWS)
