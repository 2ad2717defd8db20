"""A whole run with planted secrets: none of them is in any file it leaves or any word it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import tiny_model
from tests.support.warm import command_of, shared_server

pytestmark = pytest.mark.integration

HF = "hf_" + "a1B2" * 6
YAML = f"""\
# the token was {HF}
bf16: false
per_device_train_batch_size: 2
hub_token: {HF}
model_init_kwargs: {{"token": "open-sesame"}}
env:
  WANDB_API_KEY: open-sesame
  MLFLOW_TRACKING_URI: https://me:open-sesame@host/ml
  MY_ENDPOINT: https://host/ml?api_key=open-sesame
logging_dir: https://open-sesame@host/logs
"""
PLANTED = (b"sesame", HF.encode())


def test_planted_secrets_are_in_nothing_a_run_leaves_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    tiny_model(tmp_path / "model")
    rows = "".join(json.dumps({"text": f"row number {n} of some"}) + "\n" for n in range(16))
    (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(YAML, encoding="utf-8")
    monkeypatch.setenv("HF_TOKEN", "sesame-of-the-environment")
    with shared_server(tmp_path) as shared:
        command = command_of(shared, monkeypatch, capsys, tmp_path)
        said = command(
            *("run", "--model", "model", "--dataset", "rows.jsonl", "--config", "mine.yaml"),
            *("--set", "hub_model_id=me/mine", "--set", "hub_token=sesame-too"),
            *("--space", "quick", "--trials", "2", "--out", "run"),
        )
        assert 0 == said.code, said.err
        shown = [command("emit", "run", "--format", f).out for f in ("trl-yaml", "python", "json")]
        shown += [command("report", "run", "--format", f).out for f in ("markdown", "csv", "junit")]
    left = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert {"result.json", "request.json", "best.yaml", "best.py", "report.html", "study.db"} <= {
        file.name for file in left
    }
    for file in left:
        assert not any(secret in file.read_bytes() for secret in PLANTED), file
    for text in (said.out, said.err, *shown):
        assert not any(secret in text.encode() for secret in PLANTED)
    best = (tmp_path / "run" / "best.yaml").read_text(encoding="utf-8")
    assert "hub_model_id" in best
    assert "kept out of everything" in said.out + said.err
