from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import DatasetSource
from autotune.emit.dataset_file import write_dataset
from autotune.emit.location import locate_rows, written_rows
from autotune.emit.settings import best_trial
from tests.support.results import gpu_result, profile, with_best, with_job


def located(source: DatasetSource) -> dict[str, Any]:
    result = with_job(gpu_result(), dataset=source)
    return locate_rows(result, best_trial(result), evaluates=False).options


def test_a_hub_data_set_is_named_with_what_is_not_trls_default() -> None:
    assert {"dataset_name": "a/b"} == located(DatasetSource(path="a/b"))
    assert {
        "dataset_name": "a/b",
        "dataset_config": "en",
        "dataset_train_split": "sft",
        "dataset_test_split": "dev",
    } == located(DatasetSource(path="a/b", config="en", train_split="sft", test_split="dev"))


def test_a_part_of_a_hub_split_is_read_by_a_block_because_it_is_no_key() -> None:
    source = DatasetSource(path="a/b", config="en", train_split="train[:10%]")
    assert {"datasets": [{"path": "a/b", "name": "en", "split": "train[:10%]"}]} == located(source)


@pytest.mark.parametrize(
    ("name", "builder"),
    [
        ("r.json", "json"),
        ("r.jsonl.gz", "json"),
        ("R.PARQUET", "parquet"),
        ("r.csv", "csv"),
        ("r.arrow", "arrow"),
    ],
)
def test_a_local_file_is_read_by_its_builder(tmp_path: Path, name: str, builder: str) -> None:
    file = str(tmp_path / name)
    assert {"datasets": [{"path": builder, "data_files": file, "split": "train"}]} == located(
        DatasetSource(path=file)
    )


def test_a_file_separated_by_tabs_is_read_from_its_folder_which_knows_them(tmp_path: Path) -> None:
    block = {"path": str(tmp_path), "data_files": f"{tmp_path}/r[[]1].tsv", "split": "train"}
    assert {"datasets": [block]} == located(DatasetSource(path=str(tmp_path / "r[1].tsv")))


def test_a_folder_of_files_is_named_by_its_absolute_path(tmp_path: Path) -> None:
    assert {"dataset_name": str(tmp_path)} == located(DatasetSource(path=str(tmp_path)))


def test_a_saved_data_set_is_read_from_its_arrow_files(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    block = {"path": "arrow", "data_files": f"{tmp_path}/*.arrow", "split": "train"}
    assert {"datasets": [block]} == located(DatasetSource(path=str(tmp_path)))


def test_a_split_of_a_saved_data_set_is_read_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text("{}")
    source = DatasetSource(path=str(tmp_path), train_split="sft[:50]+dev")
    blocks = [
        {"path": "arrow", "data_files": f"{tmp_path}/sft/*.arrow", "split": "train[:50]"},
        {"path": "arrow", "data_files": f"{tmp_path}/dev/*.arrow", "split": "train"},
    ]
    assert {"datasets": blocks} == located(source)


def test_written_rows_lie_in_the_runs_folder() -> None:
    assert Path("/work/runs/support/dataset/train.parquet") == written_rows(gpu_result())


def test_a_file_whose_rows_trl_divides_has_a_test_split() -> None:
    result = with_job(gpu_result(), dataset=DatasetSource(path="r.jsonl"))
    result = result.model_copy(update={"eval_profile": result.profile})
    location = locate_rows(result, best_trial(result), evaluates=True)
    assert not location.lacks_test
    assert {"datasets"} == set(location.options)


def test_evaluating_on_the_train_rows_is_said_to_trl() -> None:
    source = DatasetSource(path="r.jsonl", test_split="train")
    result = with_job(gpu_result(), dataset=source)
    result = result.model_copy(update={"eval_profile": result.profile})
    for changed in (result, with_best(result, pretruncate_tokens=8)):
        location = locate_rows(changed, best_trial(changed), evaluates=True)
        assert "train" == location.options["dataset_test_split"]


def test_rows_to_evaluate_on_are_cut_and_written_beside_those_trained_on(tmp_path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    for name, lengths in (("rows", (3, 9)), ("eval", (12,))):
        ids = [list(range(n)) for n in lengths]
        rows = datasets.Dataset.from_dict({"input_ids": ids, "labels": ids})
        rows.save_to_disk(str(tmp_path / name))
    result = with_job(
        gpu_result(), dataset=DatasetSource(path="a/b"), options={"eval_strategy": "steps"}
    ).model_copy(
        update={
            "profile": profile(rows_dir=str(tmp_path / "rows")),
            "eval_profile": profile(rows_dir=str(tmp_path / "eval")),
            "out_dir": str(tmp_path),
        }
    )
    result = with_best(result, pretruncate_tokens=5)
    assert tmp_path / "dataset" / "train.parquet" == write_dataset(result, tmp_path)
    location = locate_rows(result, best_trial(result), evaluates=True)
    assert {"dataset_name": str(tmp_path / "dataset")} == location.options
    cache = str(tmp_path / "cache")
    loaded = datasets.load_dataset(location.options["dataset_name"], cache_dir=cache)
    assert [3, 5] == [len(ids) for ids in loaded["train"]["input_ids"]]
    assert [5] == [len(ids) for ids in loaded["test"]["input_ids"]]
