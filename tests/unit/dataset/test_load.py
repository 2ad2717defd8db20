"""Loading rows, and the one sentence that comes instead when they cannot be loaded."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource
from autotune.dataset.load import is_tabbed, load_rows, local_files

datasets.disable_progress_bars()


def load(path: Path | str, tmp_path: Path, split: str = "train", **source: Any) -> list[Any]:
    rows = load_rows(DatasetSource(path=str(path), **source), split, cache_dir=tmp_path / "cache")
    return list(rows)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path | str, tmp_path: Path, split: str = "train", **source: Any) -> str:
    with pytest.raises(BadInput) as caught:
        load(path, tmp_path, split, **source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", '{"text": "a"}\n{"text": "b"}\n'),
        ("rows.ndjson", '{"text": "a"}\n\n{"text": "b"}\n'),
        ("rows.json", '[{"text": "a"}, {"text": "b"}]'),
        ("rows.csv", "text\na\nb\n"),
        ("rows.tsv", "text\nа\n".replace("а", "a") + "b\n"),
        ("rows.txt", "a\nb\n"),
    ],
)
def test_text_files_are_loaded_by_their_ending(tmp_path: Path, name: str, text: str) -> None:
    assert [{"text": "a"}, {"text": "b"}] == load(write(tmp_path / name, text), tmp_path)


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)],
)
def test_compressed_files_are_loaded(tmp_path: Path, ending: str, compress: Any) -> None:
    path = tmp_path / f"rows.jsonl.{ending}"
    path.write_bytes(compress(b'{"text": "a"}\n'))
    assert [{"text": "a"}] == load(path, tmp_path)
    tabbed = tmp_path / f"rows.tsv.{ending}"
    tabbed.write_bytes(compress(b"text\tn\na\t1\n"))
    assert [{"text": "a", "n": 1}] == load(tabbed, tmp_path)


def test_files_separated_by_tabs_are_known_by_their_ending(tmp_path: Path) -> None:
    assert is_tabbed(DatasetSource(path="a.tsv"))
    assert is_tabbed(DatasetSource(path="a.TSV.gz"))
    assert not is_tabbed(DatasetSource(path="a.csv"))
    block = {"path": "csv", "data_files": ["a.tsv"]}
    assert is_tabbed(DatasetSource(path="csv", blocks=(block,)))


def test_the_first_rows_of_a_stream_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", "".join(f'{{"text": "{n}"}}\n' for n in range(9)))
    folder = write(tmp_path / "folder" / "test.csv", "text\na\nb\n").parent
    saved = tmp_path / "saved"
    datasets.Dataset.from_dict({"text": ["a", "b"]}).save_to_disk(str(saved))

    def first(source: DatasetSource, split: str = "train", count: int = 2) -> list[str]:
        rows = load_rows(source, split, cache_dir=tmp_path / "cache", first=count)
        return list(rows["text"])

    assert ["0", "1"] == first(DatasetSource(path=str(path)))
    assert 9 == len(first(DatasetSource(path=str(path)), count=100))
    assert ["a"] == first(DatasetSource(path=str(folder)), "test", 1)
    assert ["a"] == first(DatasetSource(path=str(saved)), count=1)
    blocks = ({"path": "json", "data_files": str(path)}, {"path": str(path)})
    assert ["0", "1"] == first(DatasetSource(path="json", blocks=blocks))
    with pytest.raises(BadInput, match=r"train\[:10%\].*cannot be read as a stream"):
        first(DatasetSource(path=str(path)), "train[:10%]")
    with pytest.raises(BadInput, match="fraction"):
        first(DatasetSource(path="", blocks=({"path": str(path), "fraction": 1.0},)))
    with pytest.raises(BadInput, match="it has 'train'"):
        first(DatasetSource(path=str(path)), "validation")


@pytest.mark.parametrize("fractions", [(0.0, 0.0), (-1.0, 2.0), ("half", 0.5)])
def test_shares_that_divide_nothing_are_refused(fractions: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n', encoding="utf-8")
    blocks = tuple({"path": str(path), "fraction": share} for share in fractions)
    assert "expected numbers above zero" in refusal("", tmp_path, blocks=blocks)


def test_a_broken_line_stops_a_stream_as_well(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"text": "a"}\n{"text":\n')
    with pytest.raises(BadInput, match="line 2"):
        load_rows(DatasetSource(path=str(path)), "train", cache_dir=tmp_path / "cache", first=5)


def test_parquet_arrow_and_saved_folders_are_loaded(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": ["a", "b"]})
    rows.to_parquet(str(tmp_path / "rows.parquet"))
    rows.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": rows, "val": rows.select([0])}).save_to_disk(
        str(tmp_path / "splits")
    )
    expected = [{"text": "a"}, {"text": "b"}]
    assert expected == load(tmp_path / "rows.parquet", tmp_path)
    assert expected == load(tmp_path / "saved", tmp_path)
    assert expected == load(next((tmp_path / "saved").glob("*.arrow")), tmp_path)
    assert expected == load(tmp_path / "splits", tmp_path)
    assert expected[:1] == load(tmp_path / "splits", tmp_path, "val")


def test_a_folder_of_files_has_the_splits_its_names_say(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "train.jsonl", '{"text": "a"}\n')
    write(tmp_path / "folder" / "test.jsonl", '{"text": "b"}\n')
    assert [{"text": "a"}] == load(tmp_path / "folder", tmp_path)
    assert [{"text": "b"}] == load(tmp_path / "folder", tmp_path, "test")
    assert [{"text": "a"}, {"text": "b"}] == load(tmp_path / "folder", tmp_path, "train+test")


def test_a_split_may_be_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"text": "a"}\n{"text": "b"}\n')
    assert [{"text": "a"}] == load(path, tmp_path, "train[:50%]")


def test_a_datasets_block_mixes_its_entries(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", '{"text": "a", "id": "1"}\n{"text": "b", "id": "2"}\n')
    two = write(tmp_path / "two.jsonl", '{"text": "c"}\n{"text": "d"}\n')
    blocks = (
        {"path": "json", "data_files": str(one), "columns": ["text"], "fraction": 0.5},
        {"path": str(two), "fraction": 0.5},
    )
    assert ["a", "b", "c", "d"] == [r["text"] for r in load("", tmp_path, blocks=blocks)]
    assert [one, two] == local_files(DatasetSource(path="", blocks=blocks))


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", '{"text": "a"}\n')
    assert "did you mean 'train.jsonl'" in refusal(tmp_path / "trian.jsonl", tmp_path)
    assert "does not exist" in refusal(tmp_path / "nowhere" / "rows.jsonl", tmp_path)
    blocks = ({"path": "json", "data_files": str(tmp_path / "tran.jsonl")},)
    assert "did you mean 'train.jsonl'" in refusal("", tmp_path, blocks=blocks)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet"])
def test_an_empty_file_is_named_as_empty(tmp_path: Path, name: str) -> None:
    message = refusal(write(tmp_path / name, ""), tmp_path)
    assert name in message
    assert "empty" in message


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "[]"), ("a.jsonl", "\n\n"), ("a.csv", "t\n")]
)
def test_a_file_without_rows_is_said_to_have_none(tmp_path: Path, name: str, text: str) -> None:
    assert "holds no rows" in refusal(write(tmp_path / name, text), tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text":\n{"text": "c"}\n', "line 2"),
        ("b.jsonl", '{"text": "a"}\n\n{"text": "b"\n', "line 3"),
        ("c.json", '[{"text": "a"},\n{"text": }]', "line 2"),
        ("d.jsonl", '"just a string"\n', "line 1"),
        ("e.csv", "text,n\na,1\nb,2,3\n", "line 3"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    tmp_path: Path, name: str, text: str, line: str
) -> None:
    message = refusal(write(tmp_path / name, text), tmp_path)
    assert line in message
    assert name in message


@pytest.mark.parametrize(("ending", "pack"), [(".xz", lzma.compress), (".bz2", bz2.compress)])
def test_what_is_wrong_inside_an_archive_is_not_taken_for_its_encoding(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    short, foreign, broken = (tmp_path / f"{n}.jsonl{ending}" for n in ("short", "foreign", "json"))
    short.write_bytes(pack(b'{"text": "a"}' * 99)[:-20])
    foreign.write_bytes(b"garbage" * 9)
    broken.write_bytes(pack(b'{"text": "a"}\n{broken\n'))
    assert "is damaged" in refusal(short, tmp_path)
    assert "is damaged" in refusal(foreign, tmp_path)
    assert "is broken JSON on line 2" in refusal(broken, tmp_path)


def test_a_damaged_archive_and_a_foreign_encoding_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}' * 99)[:-20])
    (tmp_path / "b.jsonl").write_bytes('{"text": "a"}'.encode("utf-16"))
    assert "a.jsonl.gz is damaged" in refusal(tmp_path / "a.jsonl.gz", tmp_path)
    assert "is not UTF-8" in refusal(tmp_path / "b.jsonl", tmp_path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
def test_text_in_another_encoding_is_said_to_be_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("text\ncaf\u00e9\n".encode("latin-1"))
    message = refusal(tmp_path / name, tmp_path)
    assert f"{name} is not UTF-8 text" in message
    assert "Save it as UTF-8" in message


@pytest.mark.parametrize("name", ["*.jsonl", "part-?.jsonl", "part-[12].jsonl"])
def test_a_pattern_is_answered_with_how_to_name_several_files(tmp_path: Path, name: str) -> None:
    write(tmp_path / "part-1.jsonl", '{"text": "a"}\n')
    message = refusal(tmp_path / name, tmp_path)
    assert "is a pattern" in message
    assert f"data_files: {tmp_path}" in message


def test_an_address_is_answered_with_what_to_do(tmp_path: Path) -> None:
    message = refusal("https://example.com/rows.jsonl", tmp_path)
    assert "is an address" in message
    assert "Download it first" in message


def test_files_of_different_columns_in_one_folder_name_the_columns(tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.jsonl", '{"text": "a"}\n')
    write(tmp_path / "rows" / "b.jsonl", '{"prompt": "q", "completion": "a"}\n')
    message = refusal(tmp_path / "rows", tmp_path)
    assert "other columns in one part" in message
    assert "prompt, completion, text where text came before" in message
    assert "name one of them" in message


def test_a_block_of_a_builder_without_files_says_what_is_missing(tmp_path: Path) -> None:
    assert "Add data_files" in refusal("", tmp_path, blocks=({"path": "json"},))


def test_a_split_cut_to_nothing_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"text": "a"}\n')
    assert "holds no rows" in refusal(path, tmp_path, "train[:0]")


def test_a_file_that_is_not_what_its_ending_says_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(write(tmp_path / "a.parquet", "no parquet"), tmp_path)
    assert ".docx" in refusal(write(tmp_path / "a.docx", "x"), tmp_path)
    (tmp_path / "empty").mkdir()
    assert "holds no" in refusal(tmp_path / "empty", tmp_path)


def test_an_unknown_split_names_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"text": "a"}\n')
    message = refusal(path, tmp_path, "validation")
    assert "'validation'" in message
    assert "'train'" in message


def test_a_datasets_block_says_which_column_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", '{"text": "a"}\n')
    blocks = ({"path": str(path), "columns": ["txt"]},)
    assert "did you mean 'text'" in refusal("", tmp_path, blocks=blocks)


def test_null_then_text_and_changing_types_load_as_they_are(tmp_path: Path) -> None:
    rows = [{"m": [{"a": None}]}, {"m": [{"a": {"t": "x"}}]}, {"m": [{"a": {"t": 5}}]}]
    path = write(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert rows == load(path, tmp_path)


def test_local_files_leave_the_users_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home)
    load(write(tmp_path / "rows.jsonl", '{"text": "a"}\n'), tmp_path)
    assert not home.exists()
    assert any((tmp_path / "cache").rglob("*.arrow"))
