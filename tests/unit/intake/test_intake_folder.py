"""A run's folder: made, gone on with, replaced only when asked, and never anybody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource, Job, Trainer
from autotune.intake.folder import RUNS_DIR, discard_folder, drop_replaced, open_folder
from autotune.intake.objects import as_paths
from autotune.intake.request import Request, moved_inputs, resumed_request, save_request
from autotune.study.storage import IN_MEMORY, Store

JOB = Job(trainer=Trainer.SFT, model="acme/base", dataset=DatasetSource(path="rows.jsonl"))


def opened(out: Path | None, **request: Any) -> Path:
    return open_folder(Request(out=None if out is None else str(out), **request), JOB)


def a_run(folder: Path) -> Path:
    (folder / "trials").mkdir(parents=True)
    (folder / "trials" / "0000.json").write_text("{}", encoding="utf-8")
    return folder


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    assert opened(tmp_path / "a" / "b").is_dir()
    assert opened(tmp_path / "a" / "b").is_dir(), "an empty one will do"


def test_without_a_name_it_is_called_after_time_and_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = opened(None)
    assert folder.parent == Path(RUNS_DIR)
    assert folder.name.endswith("-base")
    discard_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_overwritten_unasked_and_replaced_when_asked(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    with pytest.raises(BadInput, match="--resume"):
        opened(folder)
    assert list(opened(folder, force=True).iterdir()) == []


def test_a_run_that_failed_before_its_first_probe_is_replaced_when_asked(tmp_path: Path) -> None:
    save_request(Request(), tmp_path)
    (tmp_path / "logs").mkdir()
    assert list(opened(tmp_path, force=True).iterdir()) == []


def test_force_replaces_nothing_autotune_did_not_write(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious", encoding="utf-8")
    for request in ({}, {"force": True}):
        with pytest.raises(BadInput, match=str(tmp_path)):
            opened(tmp_path, **request)
    assert (tmp_path / "thesis.txt").exists()


def test_a_file_in_the_way_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    for out in (file, file / "below"):
        for request in ({}, {"force": True}):
            with pytest.raises(BadInput):
                opened(out, **request)
    assert file.read_text(encoding="utf-8") == "x"


def test_force_does_not_take_a_folder_from_a_search_that_is_working(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    store = Store(folder, IN_MEMORY, {})
    with pytest.raises(BadInput, match="another autotune"):
        opened(folder, force=True)
    store.close()
    assert (folder / "trials" / "0000.json").exists()


def test_only_a_run_can_be_resumed(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    assert folder == opened(folder, resume=True)
    for out in (tmp_path / "nowhere", tmp_path, None):
        with pytest.raises(BadInput, match="no run to resume"):
            opened(out, resume=True)


STORED = Request(model="m", dataset="d", trials=30, allow=("mixing",), set_options={"a": 1})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    save_request(STORED, tmp_path)
    return tmp_path


def test_resume_and_out_are_enough_to_go_on(stored: Path) -> None:
    out = str(stored)
    found = resumed_request(Request(resume=True, out=out), stored)
    assert found.model == "m"
    assert found.allow == ("mixing",)
    assert found.trials == 30
    assert found.set_options == {"a": 1}
    assert (found.resume, found.out) == (True, out)


def test_limits_may_change_on_resume_and_the_job_may_not(stored: Path) -> None:
    longer = Request(resume=True, out="x", trials=50, timeout="1h", model="m")
    assert resumed_request(longer, stored).trials == 50
    for change in ({"model": "other"}, {"memory": "1GiB"}, {"seed": 3}, {"set_options": {"a": 2}}):
        option = next(iter(change)).removesuffix("_options")
        with pytest.raises(BadInput, match=f"was started with(out)? --{option}"):
            resumed_request(Request(resume=True, out="x", **change), stored)


def test_a_default_that_is_asked_for_by_name_is_held_to_the_run_as_well(tmp_path: Path) -> None:
    save_request(Request(trainer="dpo", allow=("peft", "mixing"), trials=30), tmp_path)
    again = Request(resume=True, out="x", allow=("mixing", "peft"), given=("allow", "trials"))
    found = resumed_request(again, tmp_path)
    assert ("dpo", 16) == (found.trainer, found.trials)
    with pytest.raises(BadInput, match="was started with --trainer dpo, not with --trainer sft"):
        resumed_request(Request(resume=True, out="x", given=("trainer",)), tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{", "3"])
def test_a_damaged_request_is_bad_input(content: str, stored: Path) -> None:
    (stored / "request.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=r"request\.json is (damaged|not the request)"):
        resumed_request(Request(resume=True, out="x"), stored)


def test_names_are_handed_on_as_they_are() -> None:
    with as_paths("acme/base", Path("rows.jsonl")) as (model, dataset, _):
        assert (model, dataset) == ("acme/base", "rows.jsonl")
    with as_paths(None, None) as (model, dataset, folder):
        assert (model, dataset) == (None, None)
        assert list(Path(folder).iterdir()) == []


def test_a_run_that_force_replaced_comes_back_when_nothing_was_measured(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "trials").mkdir(parents=True)
    (folder / "result.json").write_text("precious", encoding="utf-8")
    discard_folder(opened(folder, force=True))
    assert "precious" == (folder / "result.json").read_text(encoding="utf-8")
    assert [folder] == list(tmp_path.iterdir())


def test_a_run_that_force_replaced_is_gone_once_there_is_a_new_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "trials").mkdir(parents=True)
    drop_replaced(opened(folder, force=True))
    assert [folder] == list(tmp_path.iterdir())
    assert [] == list(folder.iterdir())


def test_objects_written_for_a_run_move_into_its_folder(tmp_path: Path) -> None:
    inputs, out = tmp_path / "inputs", tmp_path / "run"
    inputs.mkdir()
    out.mkdir()
    (inputs / "rows.parquet").write_bytes(b"rows")
    request = Request(dataset=str(inputs / "rows.parquet"), inputs=str(inputs))
    moved = moved_inputs(request, out)
    assert str(out / "input" / "rows.parquet") == moved.dataset
    assert moved.inputs is None and not inputs.exists()
    assert b"rows" == (out / "input" / "rows.parquet").read_bytes()
