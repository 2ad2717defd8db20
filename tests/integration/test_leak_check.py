"""Documents flattened into one row must not see each other; a model that lets them is caught."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.core.outcome import Outcome
from autotune.core.result import read_result
from autotune.probe.protocol import ProbeSpec, RowPlan
from autotune.probe.runner import Runner
from tests.support.models import tiny_model
from tests.support.rows import write_job
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration

#: Every batch flattened by the collator, and packed.
SPACE = """
schema_version: 1
name: flattened
trainer: sft
describe: Flattened in every way.
knobs:
  per_device_train_batch_size: [2, 4]
  padding_free: [false, true]
  packing: [none, bfd]
  max_length: [32]
"""


def leaking_model(folder: Path) -> Path:
    """Write a state-space model: its scan runs on from one document into the next."""
    from transformers import MambaConfig

    tiny_model(folder)
    vocabulary = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    config = MambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, state_size=4)
    config.architectures = ["MambaForCausalLM"]
    config.save_pretrained(folder)
    return folder


@pytest.fixture
def command(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., Said]:
    return command_of(shared, monkeypatch, capsys, tmp_path)


def test_flattening_a_model_that_leaks_is_refused_once_and_said(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    rows = [{"text": "word " * n} for n in range(1, 30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "space.yaml").write_text(SPACE, "utf-8")
    leaking_model(tmp_path / "leaks")
    said = command(
        *("run", "--model", "leaks", "--dataset", "rows.jsonl", "--memory", "2GiB"),
        *("--space", "space.yaml", "--trials", "9", "--set", "bf16=false", "--out", "run"),
        *("--set", "max_length=32", "--allow", "effective-batch"),
    )
    assert 0 == said.code, said.err[-2000:]
    result = read_result(tmp_path / "run")
    flattened = [
        t.candidate.knobs
        for t in result.trials
        if t.candidate.get("padding_free") or t.candidate.get("packing") != "none"
    ]
    assert [] == flattened, "what leaks is no trial"
    refused = [s for s in result.skipped if "see each other" in s.reason]
    assert 1 == len(refused)
    probed = [json.loads(f.read_text("utf-8")) for f in (tmp_path / "run/trials").iterdir()]
    ends = [p["report"]["ending"]["outcome"] for p in probed]
    assert refused[0].count > ends.count(Outcome.INVALID) == 2, "one for each way of flattening"
    assert result.best_trial is not None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_an_attention_model_keeps_documents_apart(
    attention: str, shared: Shared, tmp_path: Path
) -> None:
    # BC17
    model, rows = write_job(tmp_path, [9 + n for n in range(16)])
    plan = RowPlan(worst=((14, 15),), paired=tuple(range(16)), block=tuple(range(16)))
    for flattens in ({"padding_free": True, "max_length": None}, {"packing": True}):
        options = {
            "per_device_train_batch_size": 2,
            "max_length": 64,
            "bf16": False,
            "attn_implementation": attention,
            **flattens,
        }
        spec = ProbeSpec(
            trainer=Trainer.SFT,
            model_dir=model,
            weights="random",
            options=options,
            device="cpu",
            rows_dir=rows,
            plan=plan,
            memory_only=True,
        )
        report = Runner(shared, tmp_path / "run").probe(spec, name="probe", deadline_s=120.0)
        assert report.measurement is not None, report.ending
        assert report.measurement.documents_mix is False
        assert attention == report.measurement.effective["attn_implementation"]
