"""Adapters over quantised weights: what TRL trains from the emitted YAML is what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autotune.core.result import read_result
from tests.support.cli import DATA
from tests.support.models import tiny_model
from tests.support.warm import Shared, command_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder is not beside the clone"),
]

ROWS = {"dpo": "dpo_en_demo.json", "reward": "dpo_en_demo.json", "kto": "kto_en_demo.json"}
#: Configs as people have them: every option of bitsandbytes, of adapters, and none of a task.
OWN = {
    "dpo": {
        "use_dora": True,
        "load_in_4bit": True,
        "lora_target_modules": ["q_proj", "gate_proj"],
        "lora_dropout": 0.0,
        "lora_alpha": 8,
    },
    "reward": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "use_bnb_nested_quant": True},
    "kto": {
        "load_in_8bit": True,
        "use_rslora": True,
        "lora_target_modules": "all-linear",
        "lora_modules_to_save": ["lm_head"],
    },
}
SHARED = {
    "use_peft": True,
    "lora_r": 4,
    "dtype": "bfloat16",
    "bf16": False,
    "max_length": 128,
    "per_device_train_batch_size": 2,
}
SPACE = """
schema_version: 1
name: one
trainer: {trainer}
describe: the own config alone
knobs:
  per_device_train_batch_size: [2]
"""
#: What `trl` runs, one trainer after the other in one process: importing takes longest.
TRAINS = """
import json, runpy, sys
import transformers
from autotune.training.parameters import count_parameters

train, counted = transformers.Trainer.train, {}
def counting(self, *args, **kwargs):
    found = count_parameters(self.model, getattr(self, "ref_model", None))
    counted[type(self).__name__] = {**found, "task": self.model.peft_config["default"].task_type}
    return train(self, *args, **kwargs)
transformers.Trainer.train = counting

config = transformers.AutoConfig.from_pretrained("model")
transformers.AutoModelForCausalLM.from_config(config).save_pretrained("model")
for trainer in sys.argv[1:]:
    sys.argv = ["trl", "--config", f"{trainer}/best.yaml", "--use_cpu", "true",
                "--max_steps", "1", "--output_dir", f"trained-{trainer}", "--report_to", "none"]
    runpy.run_module(f"trl.scripts.{trainer}", run_name="__main__")
print("counted", json.dumps(counted))
"""


def test_quantised_adapters_train_as_they_were_measured(
    shared: Shared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # bitsandbytes' CPU kernels want whole blocks of 64 weights.
    tiny_model(tmp_path / "model", hidden_size=128, intermediate_size=256, head_dim=64)
    command = command_of(shared, monkeypatch, capsys, tmp_path)
    for trainer, own in OWN.items():
        rows = json.loads((DATA / ROWS[trainer]).read_text("utf-8"))
        short = sorted(rows, key=lambda row: len(str(row)))[:40]  # every row costs time here
        (tmp_path / "rows.json").write_text(json.dumps(short), "utf-8")
        (tmp_path / "own.yaml").write_text(yaml.safe_dump({**SHARED, **own}))
        (tmp_path / "space.yaml").write_text(SPACE.format(trainer=trainer))
        said = command(
            *("run", "--trainer", trainer, "--model", "model", "--out", trainer),
            *("--dataset", "rows.json", "--memory", "2GiB"),
            *("--config", "own.yaml", "--space", "space.yaml", "--trials", "1"),
        )
        assert said.code == 0, said.err[-3000:]
    trained = subprocess.run(
        [sys.executable, "-c", TRAINS, *OWN],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert trained.returncode == 0, trained.stdout[-2000:] + trained.stderr[-3000:]
    counted = json.loads(trained.stdout.rpartition("counted ")[2])
    for trainer, kind in (("dpo", "DPO"), ("reward", "Reward"), ("kto", "KTO")):
        best = read_result(tmp_path / trainer).best_trial
        assert best is not None and best.report.measurement is not None
        task = counted[f"{kind}Trainer"].pop("task")
        assert ("SEQ_CLS" if trainer == "reward" else "CAUSAL_LM") == task
        assert best.report.measurement.parameters == counted[f"{kind}Trainer"]
    assert "lora_task_type: SEQ_CLS" in (tmp_path / "reward" / "best.yaml").read_text()
