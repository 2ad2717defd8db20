"""``autotune predict`` as a user calls it: without weights, without the GPU, without a probe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.core.prediction import Fit, Forecast
from tests.support.cli import autotune
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    tiny_model(folder / "model", num_hidden_layers=2)
    rows = [{"text": "word " * n} for n in range(1, 60)]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    return folder


def test_a_whole_space_is_predicted_for_a_named_gpu_into_table_document_and_page(
    job: Path,
) -> None:
    named = ("--model", "model", "--dataset", "rows.jsonl", "--space", "quick")
    done = autotune("predict", *named, "--gpu", "rtx-4090", "--out", "forecast", cwd=job)
    assert 0 == done.returncode, done.stderr
    assert "RTX-4090" in done.stdout and "fastest:" in done.stdout
    found = Forecast.model_validate_json((job / "forecast" / "forecast.json").read_bytes())
    assert len(found.predictions) > 10 and found.not_traced == ()
    assert {Fit.FITS} == {p.fit(found.budget) for p in found.predictions}
    assert all(sum(p.split.values()) == p.traced_bytes for p in found.predictions)
    assert (job / "forecast" / "forecast.html").stat().st_size > 10_000
    again = autotune("predict", *named, "--gpu", "rtx-4090", "--out", "forecast", cwd=job)
    assert 2 == again.returncode


def test_one_config_of_a_bare_config_json_is_explained_and_does_not_fit(job: Path) -> None:
    bare = job / "bare"
    bare.mkdir()
    text = (job / "model" / "config.json").read_text(encoding="utf-8")
    (bare / "config.json").write_text(text, encoding="utf-8")
    lines = ["model_name_or_path: bare", "max_length: 128", "per_device_train_batch_size: 8"]
    (job / "mine.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = autotune(
        "predict", "--config", "mine.yaml", "--gpu", "t4", "--memory", "700MiB", cwd=job
    )
    assert 0 == done.returncode, done.stderr
    assert "no tokenizer beside config.json" in done.stdout
    assert "take" in done.stdout and "of the peak" in done.stdout
    assert "per_device_train_batch_size 8 -> 4" in done.stdout
    assert "fp16" in done.stdout  # a T4 has no bf16
    tight = autotune(
        "predict", "--config", "mine.yaml", "--gpu", "t4", "--memory", "400MiB", cwd=job
    )
    assert 3 == tight.returncode
    assert "does not fit" in tight.stderr and "of the peak" in tight.stderr


def test_flash_attention_is_predicted_where_it_is_not_installed(job: Path) -> None:
    named = ("--model", "model", "--dataset", "rows.jsonl", "--space", "quick")
    pinned = ("--set", "attn_implementation=flash_attention_2")
    done = autotune("predict", *named, *pinned, "--gpu", "rtx-4090", cwd=job)
    assert 0 == done.returncode, done.stderr
    assert "needs the package flash-attn where it runs" in done.stdout
    old = autotune("predict", *named, *pinned, "--gpu", "t4", cwd=job)
    assert 4 == old.returncode
    assert "needs compute capability 8.0 or more, and T4 has 7.5" in old.stderr
