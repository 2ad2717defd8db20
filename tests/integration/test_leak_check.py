"""Documents flattened into one row must not see each other; a model that lets them is caught."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.core.outcome import Outcome
from autotune.core.result import read_result
from tests.support.cli import autotune
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration


def leaking_model(folder: Path) -> Path:
    """Write a state-space model: its scan runs on from one document into the next."""
    from transformers import MambaConfig

    tiny_model(folder)
    vocabulary = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    config = MambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, state_size=4)
    config.architectures = ["MambaForCausalLM"]
    config.save_pretrained(folder)
    return folder


def test_flattening_a_model_that_leaks_is_refused_and_said(tmp_path: Path) -> None:
    rows = [{"text": "word " * n} for n in range(1, 30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    common = ("--dataset", "rows.jsonl", "--memory", "2GiB", "--space", "quick", "--trials", "5")
    leaking_model(tmp_path / "leaks")
    done = autotune(
        *("run", "--model", "leaks", *common, "--set", "bf16=false", "--out", "leaky"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = read_result(tmp_path / "leaky")
    flattened = [
        t
        for t in result.trials
        if t.candidate.get("padding_free") or t.candidate.get("packing") != "none"
    ]
    assert flattened
    assert {t.report.ending.outcome for t in flattened} == {Outcome.INVALID}
    assert all("see each other" in t.report.ending.reason for t in flattened)
    assert result.best_trial not in flattened


def test_an_attention_model_keeps_documents_apart(tmp_path: Path) -> None:
    rows = [{"text": "word " * n} for n in range(1, 30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    tiny_model(tmp_path / "model")
    done = autotune(
        *("run", "--model", "model", "--dataset", "rows.jsonl", "--memory", "2GiB"),
        *("--space", "quick", "--trials", "4", "--set", "bf16=false", "--out", "run"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    checked = [
        t.report.measurement.documents_mix
        for t in read_result(tmp_path / "run").trials
        if t.report.measurement is not None
    ]
    assert False in checked and True not in checked
