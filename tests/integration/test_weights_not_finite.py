"""Weights that hold NaN end in one sentence; what was measured with random ones is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.result import read_result
from tests.support.cli import autotune
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration

SAVE_BROKEN = (
    "import sys; from transformers import AutoConfig, AutoModelForCausalLM as M;"
    "model = M.from_config(AutoConfig.from_pretrained(sys.argv[1]));"
    "next(model.parameters()).data.view(-1)[7] = float('nan'); model.save_pretrained(sys.argv[1])"
)


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, ...]:
    """Options of a job whose model folder holds a value that is not finite."""
    model = tiny_model(tmp_path / "model")
    subprocess.run([sys.executable, "-c", SAVE_BROKEN, str(model)], check=True, capture_output=True)
    rows = [{"text": "some words " * n} for n in range(1, 40)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    return (
        *("--model", str(model), "--dataset", str(file), "--memory", "2GiB"),
        *("--set", "bf16=false", "--out", "run"),
    )


def test_a_search_ends_with_one_sentence_and_keeps_what_it_measured(
    job: tuple[str, ...], tmp_path: Path
) -> None:
    done = autotune("run", *job, "--space", "quick", "--trials", "3", cwd=tmp_path)
    assert done.returncode == 4, done.stderr[-3000:]
    assert "hold values that are not finite" in done.stderr
    assert "embed_tokens.weight" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "best.yaml").exists()
    assert any(t.estimate for t in read_result(tmp_path / "run").trials)


def test_real_weights_asked_for_are_looked_at_in_the_first_probe(
    job: tuple[str, ...], tmp_path: Path
) -> None:
    done = autotune("probe", *job[:-2], "--weights", "real", cwd=tmp_path)
    assert done.returncode == 4, done.stderr[-3000:]
    assert "hold values that are not finite" in done.stderr
