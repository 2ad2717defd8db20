"""What is emitted, read by those who will read it: TRL's parser, accelerate, and Python."""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from autotune.api import Tuned
from autotune.core.job import DatasetSource, Trainer
from autotune.core.result import Result
from autotune.emit import EMITTERS, build_config, cpu_overrides, fields, trainer_kwargs
from autotune.emit.settings import settings_of
from tests.support.results import (
    OWN_OPTIONS,
    OWN_YAML,
    cpu_result,
    gpu_result,
    preference_result,
    with_best,
    with_job,
)

pytestmark = pytest.mark.integration

CPU_FLAGS = ["--use_cpu", "true", "--bf16", "false", "--fp16", "false"]
CPU_OPTIONS = {"use_cpu": True, "bf16": False, "fp16": False}

AWKWARD_YAML = """\
learning_rate: 2e-5
bf16: "true"
lr_scheduler_kwargs: {min_lr: 1.0e-6}
lr_scheduler_type: cosine_with_min_lr
optim: adamw_torch_fused
report_to: none
max_grad_norm: 1
use_peft: true
lora_target_modules: all-linear
dtype: bfloat16
attn_implementation: sdpa
weight_decay: 1e-2
eval_strategy: no
save_strategy: no
logging_steps: 0.1
gradient_checkpointing_kwargs: '{"use_reentrant": false}'
"""


def results() -> dict[str, Result]:
    awkward: dict[str, Any] = {
        "learning_rate": "2e-5",
        "bf16": "true",
        "lr_scheduler_kwargs": {"min_lr": 1.0e-6},
        "lr_scheduler_type": "cosine_with_min_lr",
        "optim": "adamw_torch_fused",
        "report_to": "none",
        "max_grad_norm": 1,
        "use_peft": True,
        "lora_target_modules": "all-linear",
        "dtype": "bfloat16",
        "attn_implementation": "sdpa",
        "weight_decay": "1e-2",
        "eval_strategy": False,
        "save_strategy": False,
        "logging_steps": 0.1,
    }
    return {
        "gpu": gpu_result(),
        "cpu": cpu_result(),
        "awkward": with_job(gpu_result(), config_text=AWKWARD_YAML, options=awkward, env={}),
        "padding_free": with_best(
            gpu_result(),
            options={"padding_free": True, "packing": False, "max_length": None},
            pretruncate_tokens=2048,
        ),
        "blocks": with_job(
            gpu_result(),
            config_text="datasets:\n  - path: json\n    data_files: a.json\ntest_split_size: 0.1\n",
            options={"test_split_size": 0.1},
            dataset=DatasetSource(
                path="a.json", blocks=({"path": "json", "data_files": "a.json"},)
            ),
        ),
        **{t.value: preference_result(t) for t in (Trainer.DPO, Trainer.REWARD, Trainer.KTO)},
    }


def parsed(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read the emitted YAML as ``trl sft`` and its kin do, on a machine without a GPU."""
    script = import_module(f"trl.scripts.{settings_of(result).classes.command}")

    for name in settings_of(result).env:
        monkeypatch.setenv(name, "")
    file = tmp_path / "best.yaml"
    file.write_text(EMITTERS["trl-yaml"].render(result))
    return script.make_parser().parse_args_and_config(
        ["--config", str(file), *CPU_FLAGS], return_remaining_strings=True
    )


@pytest.mark.parametrize("name", list(results()))
def test_trls_parser_leaves_nothing_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results()[name]
    *_, rest = parsed(result, tmp_path, monkeypatch)
    assert [] == rest
    assert settings_of(result).env == {n: os.environ[n] for n in settings_of(result).env}


@pytest.mark.parametrize("name", list(results()))
def test_the_config_from_python_is_the_one_trl_reads_from_the_yaml(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results()[name]
    _, expected, *_ = parsed(result, tmp_path, monkeypatch)
    assert expected.to_dict() == build_config(result, **CPU_OPTIONS).to_dict()


@pytest.mark.parametrize("name", list(results()))
def test_model_and_rows_read_by_trl_are_the_winners(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results()[name]
    script, _, model, mixture, _ = parsed(result, tmp_path, monkeypatch)
    settings = settings_of(result)
    assert settings.model == model.model_name_or_path
    assert settings.location.options.get("dataset_name") == script.dataset_name
    blocks = [{k: v for k, v in vars(d).items() if v is not None} for d in mixture.datasets]
    assert [{"split": "train", **b} for b in settings.location.blocks or []] == blocks
    options = {k: v for k, v in settings.model_options.items() if k != "lora_target_modules"}
    assert options == {k: getattr(model, k) for k in options}


def test_the_tables_of_names_are_trls() -> None:
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments

    def names(cls: Any) -> set[str]:
        return {f.name for f in dataclasses.fields(cls)}

    assert names(ModelConfig) == set(fields.MODEL_FIELDS)
    assert names(ScriptArguments) == set(fields.SCRIPT_FIELDS)
    assert names(DatasetMixtureConfig) == set(fields.MIXTURE_FIELDS)


def test_the_default_length_is_trls() -> None:
    import trl

    for classes in fields.TRAINERS.values():
        config = getattr(trl, classes.config)
        default = next(f.default for f in dataclasses.fields(config) if f.name == "max_length")
        assert classes.max_length == default


@pytest.mark.parametrize("trainer", list(fields.TRAINERS))
@pytest.mark.parametrize("processes", [1, 4])
def test_accelerate_reads_the_launcher_file(
    processes: int, trainer: Trainer, tmp_path: Path
) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    text = OWN_YAML + f"num_processes: {processes}\n"
    result = with_job(gpu_result(), config_text=text, trainer=trainer)
    file = tmp_path / "accelerate.yaml"
    file.write_text(EMITTERS["accelerate"].render(result))
    config = load_config_from_file(str(file))
    assert (processes, "bf16", False) == (
        config.num_processes,
        config.mixed_precision,
        config.use_cpu,
    )


def rows_of(trainer: Trainer) -> list[dict[str, Any]]:
    """Return 24 rows of growing length in the layout a trainer takes."""
    texts = [" ".join("abcdefghij"[: 2 + n % 9]) for n in range(24)]
    if trainer is Trainer.SFT:
        return [{"text": text} for text in texts]
    if trainer is Trainer.KTO:
        return [
            {"prompt": "a b", "completion": f" {text}", "label": n % 2 == 0}
            for n, text in enumerate(texts)
        ]
    return [{"prompt": "a b", "chosen": f" {text}", "rejected": " c d"} for text in texts]


@pytest.fixture(scope="module")
def tiny_job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a random two-layer model with a word tokenizer, and rows in several containers."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny job")
    words = {w: n for n, w in enumerate(["<pad>", "</s>", "<unk>", *"abcdefghij"])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for trainer in fields.TRAINERS:
        lines = [json.dumps(row) + "\n" for row in rows_of(trainer)]
        (folder / f"{trainer.value}.jsonl").write_text("".join(lines))
    rows = Dataset.from_list(rows_of(Trainer.SFT))
    rows.save_to_disk(str(folder / "part [1]" / "saved"), num_shards=2)
    (folder / "files").mkdir()
    rows.to_parquet(str(folder / "files" / "train.parquet"))
    return {"folder": folder, "model": folder / "model"}


def tiny_result(job: dict[str, Path], rows: str, trainer: Trainer = Trainer.SFT) -> Result:
    result = with_job(
        cpu_result() if trainer is Trainer.SFT else preference_result(trainer),
        model=str(job["model"]),
        dataset=DatasetSource(path=str(job["folder"] / rows)),
        options={"output_dir": str(job["folder"] / "out"), "save_strategy": "no"},
    )
    profile = result.profile.model_copy(update={"converted_file": None})
    return result.model_copy(update={"profile": profile})


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("WANDB_MODE", "disabled")


def test_the_script_trains_two_steps_in_a_process_of_its_own(
    tiny_job: dict[str, Path], tmp_path: Path
) -> None:
    file, out = tmp_path / "best.py", tmp_path / "trained"
    file.write_text(EMITTERS["python"].render(tiny_result(tiny_job, "part [1]/saved")))
    done = subprocess.run(
        [sys.executable, str(file), "--max_steps", "2", "--use_cpu", "--output_dir", str(out)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": str(tmp_path / "cache"),
            "WANDB_MODE": "disabled",
        },
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("trainer", "rows"),
    [*((t, f"{t.value}.jsonl") for t in fields.TRAINERS), (Trainer.SFT, "files")],
)
def test_the_script_of_every_trainer_trains(
    trainer: Trainer,
    rows: str,
    tiny_job: dict[str, Path],
    tmp_path: Path,
    offline: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, out = tmp_path / "best.py", tmp_path / "trained"
    file.write_text(EMITTERS["python"].render(tiny_result(tiny_job, rows, trainer)))
    options = ["--max_steps", "1", "--use_cpu", "--output_dir", str(out)]
    monkeypatch.setattr(sys, "argv", [str(file), *options])
    runpy.run_path(str(file), run_name="__main__")
    assert (out / "model.safetensors").is_file()


@pytest.mark.parametrize("trainer", list(fields.TRAINERS))
def test_config_and_trainer_of_every_kind_are_ready_from_python(
    trainer: Trainer, tiny_job: dict[str, Path], tmp_path: Path, offline: None
) -> None:
    import trl

    tuned = Tuned(tiny_result(tiny_job, f"{trainer.value}.jsonl", trainer))
    classes = fields.TRAINERS[trainer]
    assert isinstance(tuned.config, getattr(trl, classes.config))
    assert 512 == tuned.config.max_length
    overrides = {**cpu_overrides(tuned.result), "max_steps": 1, "output_dir": str(tmp_path / "o")}
    kwargs = trainer_kwargs(tuned.result, **overrides, report_to="none")
    assert kwargs.keys() == tuned.trainer_kwargs.keys()
    assert 1 == getattr(trl, classes.trainer)(**kwargs).train().global_step


def test_the_users_options_come_back_when_trl_reads_the_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, config, *_ = parsed(gpu_result(), tmp_path, monkeypatch)
    kept = ("output_dir", "hub_model_id", "push_to_hub", "resume_from_checkpoint")
    assert {k: OWN_OPTIONS[k] for k in kept} == {k: getattr(config, k) for k in kept}
