"""A config that evaluates: the emitted YAML trains and evaluates, whatever the rows came as."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from autotune.core.result import Result, read_result
from tests.integration.test_real_data import weights_for
from tests.support.cli import trl
from tests.support.models import tiny_model
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration
Command = Callable[..., Said]


def turns(n: int) -> dict[str, Any]:
    said = [{"from": "human", "value": f"question {n}"}, {"from": "gpt", "value": "yes " * n}]
    return {"conversations": said}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model(tmp_path_factory.mktemp("model"))
    weights_for(folder)
    return folder


@pytest.fixture
def command(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Command:
    return command_of(shared, monkeypatch, capsys, tmp_path)


def tuned(command: Command, tmp_path: Path, model: Path, *arguments: str) -> tuple[Result, Any]:
    said = command(
        *("run", "--model", str(model), "--space", "quick", "--trials", "1", "--out", "run"),
        *("--memory", "2GiB", "--set", "bf16=false", "--set", "eval_strategy=steps"),
        *("--set", "eval_steps=1", *arguments),
    )
    assert 0 == said.code, said.err
    emitted = yaml.safe_load((tmp_path / "run" / "best.yaml").read_text(encoding="utf-8"))
    return read_result(tmp_path / "run"), emitted


def trained(tmp_path: Path) -> str:
    done = trl(
        *("sft", "--config", "run/best.yaml", "--use_cpu", "true", "--bf16", "false"),
        *("--max_steps", "1", "--output_dir", "trained", "--report_to", "none"),
        cwd=tmp_path,
    )
    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_converted_rows_are_written_with_the_test_rows_beside_them(
    command: Command, tmp_path: Path, model: Path
) -> None:
    splits = {
        "train": datasets.Dataset.from_list([turns(n) for n in range(1, 40)]),
        "dev": datasets.Dataset.from_list([turns(n) for n in range(1, 9)]),
    }
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    result, emitted = tuned(
        command, tmp_path, model, "--dataset", "saved", "--dataset-test-split", "dev"
    )
    assert result.eval_profile is not None
    assert (39, 8) == (result.profile.rows_used, result.eval_profile.rows_used)
    assert str(tmp_path / "run" / "dataset") == emitted["dataset_name"]
    assert not {"datasets", "dataset_test_split"} & set(emitted)
    for name, rows in (("train", 39), ("test", 8)):
        file = tmp_path / "run" / "dataset" / f"{name}.parquet"
        assert rows == len(datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "c")))
    assert "eval_loss" in trained(tmp_path)


def test_a_file_is_divided_by_trl_itself_when_the_config_says_so(
    command: Command, tmp_path: Path, model: Path
) -> None:
    lines = "".join(f"words {n}, and more\t{n}\n" for n in range(40))
    (tmp_path / "rows.tsv").write_text("text\tn\n" + lines, encoding="utf-8")
    result, emitted = tuned(
        command, tmp_path, model, "--dataset", "rows.tsv", "--set", "test_split_size=0.2"
    )
    assert result.eval_profile == result.profile
    assert "separated by tabs" in str(result.profile.conversion)
    assert (
        str(tmp_path / "run" / "dataset" / "train.parquet") == emitted["datasets"][0]["data_files"]
    )
    assert 0.2 == emitted["test_split_size"]
    assert any("8 of the 40 rows are held out" in said for said in result.notices)
    numbers = result.estimate_of(result.best)
    assert numbers is not None
    assert 32 == numbers.updates_per_pass * numbers.sequences_per_update
    assert not (tmp_path / "run" / "dataset" / "test.parquet").exists()
    assert "eval_loss" in trained(tmp_path)


def test_a_folder_with_a_test_file_needs_nothing_written(
    command: Command, tmp_path: Path, model: Path
) -> None:
    for name, count in (("train", 20), ("test", 5)):
        rows = [{"text": "some words " * n} for n in range(1, count)]
        file = tmp_path / "rows" / f"{name}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    result, emitted = tuned(command, tmp_path, model, "--dataset", "rows")
    assert str(tmp_path / "rows") == emitted["dataset_name"]
    assert result.eval_profile is not None and 4 == result.eval_profile.rows_used
