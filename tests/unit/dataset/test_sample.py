"""A bounded number of rows, and the sentence that says so."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource, Trainer
from autotune.dataset.preflight import sampled_columns
from autotune.dataset.recognise import recognise
from autotune.dataset.sample import sample_of
from autotune.dataset.scan import sampled_rows
from autotune.dataset.survey import survey_rows

datasets.disable_progress_bars()

TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]


@pytest.fixture
def source(tmp_path: Path) -> DatasetSource:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": f"{n}"}) + "\n" for n in range(100)), "utf-8")
    return DatasetSource(path=str(path))


def test_all_rows_are_taken_without_a_word_when_nobody_bounds_them(
    source: DatasetSource, tmp_path: Path
) -> None:
    whole = sample_of(source, "train", None, cache_dir=tmp_path)
    assert (100, ()) == (len(whole.rows), whole.notices)
    assert () == sample_of(source, "train", 100, cache_dir=tmp_path).notices


def test_a_sample_of_a_table_is_spread_evenly_and_stated(
    source: DatasetSource, tmp_path: Path
) -> None:
    sample = sample_of(source, "train", 10, cache_dir=tmp_path)
    taken = [int(text) for text in sample.rows["text"]]
    assert 10 == len(taken)
    assert (0, 99) == (taken[0], taken[-1])
    (notice,) = sample.notices
    assert ("sampled-rows", 10) == (notice.code, notice.count)
    assert "10 of 100 rows" in notice.message


def test_a_stream_is_taken_from_its_start_and_its_size_is_stated(
    source: DatasetSource, tmp_path: Path
) -> None:
    sample = sample_of(source, "train", 10, cache_dir=tmp_path, stream=True)
    assert [str(n) for n in range(10)] == list(sample.rows["text"])
    (notice,) = sample.notices
    assert ("sampled-stream", 10) == (notice.code, notice.count)
    assert "its first 10" in notice.message
    assert "what follows was not looked at" in notice.message
    again = sample_of(source, "train", 10, cache_dir=tmp_path, stream=True)
    other = sample_of(source, "train", 11, cache_dir=tmp_path, stream=True)
    assert sample.fingerprint == again.fingerprint != other.fingerprint
    whole = sample_of(source, "train", 1000, cache_dir=tmp_path, stream=True)
    assert 100 == len(whole.rows)
    assert "it has no more" in whole.notices[0].message


def test_a_sample_holds_every_row_of_the_tail() -> None:
    assert list(range(7)) == sampled_rows(7, 10).tolist()
    sampled = sampled_rows(1000, 10).tolist()
    assert [995, 996, 997, 998, 999] == sampled[5:]
    assert sampled == sorted(set(sampled))


def test_a_layout_recognised_from_a_sample_is_said_to_be() -> None:
    rows = datasets.Dataset.from_list(
        [{"conversations": TURNS}] * 30, on_mixed_types="use_json"
    ).cast_column("conversations", datasets.Json())
    layout, columns = recognise(rows, Trainer.SFT, "text", scanned_rows=8)
    assert "conversations" == layout.name
    (notice,) = sampled_columns(columns, layout.columns("text"), len(rows))
    assert ("sampled-recognition", 8) == (notice.code, notice.count)
    assert "from 8 of 30 rows, 4 spread evenly and the last 4" in notice.message
    _, whole = recognise(rows, Trainer.SFT, "text")
    assert () == sampled_columns(whole, layout.columns("text"), len(rows))


def test_a_row_of_another_kind_that_the_sample_missed_stops_all_the_same() -> None:
    listed = [{"conversations": TURNS}] * 11 + [{"conversations": "text"}]
    rows = datasets.Dataset.from_list(
        listed + [{"conversations": TURNS}] * 18, on_mixed_types="use_json"
    )
    layout, columns = recognise(rows, Trainer.SFT, "text", scanned_rows=4)
    with pytest.raises(BadInput, match=r"text in row 12"):
        survey_rows(rows, layout, columns, "text", Trainer.SFT)
