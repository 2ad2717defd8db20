"""The whole pipeline on real rows: tuned, emitted, and trained by TRL's own command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autotune.core.command import WEIGHTS
from autotune.core.result import read_result
from tests.support.cli import DATA, autotune, trl
from tests.support.models import tiny_model

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder is not beside the clone"),
]


@pytest.mark.parametrize(
    "name", ["alpaca_en_demo.json", "glaive_toolcall_en_demo.json", "c4_demo.jsonl"]
)
def test_real_rows_are_tuned_and_the_emitted_yaml_trains(name: str, tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    done = autotune(
        "run",
        *("--model", str(model), "--dataset", str(DATA / name)),
        *("--memory", "2GiB", "--space", "quick", "--trials", "3", "--out", "run"),
        *("--set", "bf16=false", "--set", "max_length=512", "--set", "learning_rate=2e-5"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = read_result(tmp_path / "run")
    assert result.trials[0].role == "baseline"
    assert result.best_trial is not None and result.best_trial.estimate is not None
    last = done.stdout.strip().splitlines()[-1]
    assert last == (
        f"trl sft --config {tmp_path}/run/best.yaml --model_name_or_path {WEIGHTS} --use_cpu true"
    ), "the folder has a config only"
    emitted = yaml.safe_load((tmp_path / "run" / "best.yaml").read_text("utf-8"))
    assert emitted["max_length"] in (512, None) or result.best_trial.options["packing"]
    assert "use_cpu" not in emitted
    weights_for(model)
    trained = trl(
        *("sft", "--config", "run/best.yaml", "--use_cpu", "true", "--bf16", "false"),
        *("--max_steps", "2", "--output_dir", "trained", "--report_to", "none"),
        cwd=tmp_path,
    )
    assert trained.returncode == 0, trained.stdout[-2000:] + trained.stderr[-3000:]
    assert (tmp_path / "trained" / "model.safetensors").is_file()


def weights_for(model: Path) -> None:
    """Put random weights beside a config, as a real model folder has them."""
    code = (
        "import sys; from transformers import AutoConfig, AutoModelForCausalLM as M;"
        "M.from_config(AutoConfig.from_pretrained(sys.argv[1])).save_pretrained(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(model)], check=True, capture_output=True)


def test_a_config_that_talks_to_the_world_is_tuned_quietly_and_comes_back_whole(
    tmp_path: Path,
) -> None:
    model = tiny_model(tmp_path / "model")
    weights_for(model)
    mine = {
        "output_dir": "my-model",
        "model_init_kwargs": {"device_map": "auto"},
        "push_to_hub": True,
        "hub_model_id": "someone/some-model",
        "hub_strategy": "every_save",
        "report_to": ["wandb", "tensorboard"],
        "run_name": "friday",
        "resume_from_checkpoint": "my-model/checkpoint-500",
        "save_steps": 50,
        "bf16": False,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
    }
    text = "# my run\n" + yaml.safe_dump(mine) + "learning_rate: 1.0e-4  # found by hand\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    rows = [{"text": "some words " * n} for n in range(1, 40)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    before = {p.name for p in tmp_path.iterdir()}
    done = autotune(
        *("run", "--config", "mine.yaml", "--model", str(model), "--dataset", str(file)),
        *("--memory", "2GiB", "--space", "quick", "--trials", "2", "--out", "run"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert {p.name for p in tmp_path.iterdir()} - before == {"run"}
    emitted_text = (tmp_path / "run" / "best.yaml").read_text("utf-8")
    emitted = yaml.safe_load(emitted_text)
    kept = {k: emitted[k] for k in mine if not k.startswith(("per_device", "gradient_acc"))}
    assert kept == {k: v for k, v in mine.items() if k in kept}
    assert "# found by hand" in emitted_text and "# my run" in emitted_text
    result = read_result(tmp_path / "run")
    assert result.verification.startswith(
        "verified in a fresh process with real weights: 20 updates"
    )
    assert "one checkpoint saved" in result.verification
    assert result.overrides["push_to_hub"] is True
    assert result.overrides["model_init_kwargs.device_map"] == "auto"
    assert result.overrides["hub_model_id"] == "someone/some-model"
