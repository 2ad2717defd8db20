"""From what people type to a job: YAML and options merged, the demo filled in, names checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune import demo
from autotune.core.errors import BadInput, NotBuiltYet
from autotune.core.job import PROBED_TRAINERS, Job, Trainer
from autotune.intake.job import build_job
from autotune.intake.request import Request

YAML = """\
# mine
model_name_or_path: acme/base
dataset_name: acme/chats
dataset_train_split: train_sft
learning_rate: 1.0e-4
max_length: 512
env:
  WANDB_PROJECT: x
"""


def job_of(**request: Any) -> Job:
    return build_job(Request(**request))[0]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(YAML, encoding="utf-8")
    return str(file)


def test_a_config_names_model_data_options_and_environment(config: str) -> None:
    job = job_of(config=config)
    assert job.model == "acme/base"
    assert job.dataset.path == "acme/chats"
    assert job.dataset.train_split == "train_sft"
    assert job.options["max_length"] == 512
    assert "model_name_or_path" not in job.options
    assert job.env == {"WANDB_PROJECT": "x"}
    assert job.config_text == YAML


def test_what_is_typed_wins_over_the_config(config: str) -> None:
    job = job_of(
        config=config,
        model="acme/other",
        dataset_train_split="train",
        set_options={"max_length": 256},
    )
    assert job.model == "acme/other"
    assert job.dataset.path == "acme/chats"
    assert job.dataset.train_split == "train"
    assert job.options["max_length"] == 256
    assert job.options["learning_rate"] == pytest.approx(1e-4)


def test_what_is_typed_wins_by_whatever_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("activation_checkpointing: true\n", encoding="utf-8")
    job = job_of(config=str(file), set_options={"gradient_checkpointing": False})
    assert {"gradient_checkpointing": False} == job.options


def test_a_data_set_that_is_typed_brings_its_own_splits(config: str) -> None:
    job = job_of(config=config, dataset="acme/else")
    assert job.dataset.path == "acme/else"
    assert job.dataset.train_split == "train"


def test_nothing_named_is_the_demo_and_says_so() -> None:
    job, origin = build_job(Request())
    assert origin.demo_model
    assert job.dataset.path == str(demo.rows_path())
    assert job.options
    assert "embedded demo job" in " ".join(origin.notices)


@pytest.mark.parametrize(
    ("half", "missing"),
    [
        ({"dataset": "rows.jsonl"}, "--model is missing: rows are named"),
        ({"model": "acme/base"}, "--dataset is missing: a model is named"),
    ],
)
def test_half_a_job_is_a_question_that_names_the_missing_half_and_the_demos(
    half: dict[str, Any], missing: str, tmp_path: Path
) -> None:
    yaml = {"dataset": "dataset_name", "model": "model_name_or_path"}
    file = tmp_path / "half.yaml"
    file.write_text("".join(f"{yaml[k]}: {v}\n" for k, v in half.items()), encoding="utf-8")
    for request in (Request(**half), Request(config=str(file))):
        with pytest.raises(BadInput, match=missing) as caught:
            build_job(request)
        assert "demo for the embedded demo" in str(caught.value.hint)


def test_the_demos_half_is_taken_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n", encoding="utf-8")
    job, origin = build_job(Request(model="demo", dataset=str(rows)))
    assert (True, False) == (origin.demo_model, origin.demo_rows)
    assert str(rows) == job.dataset.path
    job, origin = build_job(Request(model="acme/base", dataset="demo"))
    assert (False, True) == (origin.demo_model, origin.demo_rows)
    assert str(demo.rows_path()) == job.dataset.path
    assert origin.memory_bytes is None, "the demo's budget is for the demo job alone"
    whole = build_job(Request(model="demo", dataset="demo"))[0]
    assert build_job(Request())[0] == whole
    (tmp_path / "demo").mkdir()
    assert str(tmp_path / "demo") == job_of(model="demo", dataset=str(rows)).model


def test_a_config_that_names_neither_is_trained_on_the_demo_and_that_is_said(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 3\n", encoding="utf-8")
    job, origin = build_job(Request(config=str(file)))
    assert ({"seed": 3}, True) == (job.options, origin.demo_model)
    assert any("demo's are trained with your config" in n for n in origin.notices)


def test_local_paths_become_absolute_and_hub_ids_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    job = job_of(model="model", dataset="acme/chats")
    assert job.model == str(tmp_path / "model")
    assert job.dataset.path == "acme/chats"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a trainer": ({"trainer": "sfft"}, "'sft'"),
    "a change": ({"allow": ("mixin",)}, "'mixing'"),
    "an objective": ({"objective": "speed"}, "throughput"),
    "weights": ({"weights": "reel"}, "'real'"),
    "a share": ({"min_retention": "1.5"}, "100 %"),
    "a config that is not there": ({"config": "nowhere.yaml"}, "nowhere.yaml"),
    "rows instead of their file": ({"dataset": '[{"text": "x"}]' * 300}, "neither a path"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_name_that_is_wrong_is_bad_input(case: str) -> None:
    request, words = WRONG[case]
    with pytest.raises(BadInput, match=words):
        job_of(**request)


@pytest.mark.parametrize("trainer", [t for t in Trainer if t not in PROBED_TRAINERS])
def test_a_trainer_that_cannot_be_probed_yet_is_said_by_name(trainer: Trainer) -> None:
    with pytest.raises(NotBuiltYet, match=trainer.value) as caught:
        job_of(trainer=trainer.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("count", ["2", "16"])
def test_a_rank_of_a_distributed_launch_is_refused(
    count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # BC11: every process would search for itself.
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", count)
    with pytest.raises(BadInput, match=f"distributed launcher .WORLD_SIZE is {count}"):
        build_job(Request())


@pytest.mark.parametrize("names", [{"WORLD_SIZE": "4"}, {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}])
def test_a_process_alone_is_no_rank_whatever_a_cluster_sets(
    names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert build_job(Request())[1].demo_model
