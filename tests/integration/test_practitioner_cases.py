"""Practitioners' failures with real models: a cause costs one probe, is named, and others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput, ToolFailure
from autotune.core.job import Trainer
from autotune.core.outcome import Outcome
from autotune.core.result import Result, read_result
from autotune.emit import write_emitted
from autotune.probe.protocol import ConstructSpec
from autotune.probe.runner import Runner
from autotune.use.constructed import require_constructed
from tests.support.models import tiny_model, with_code
from tests.support.results import cpu_result, with_job
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration

HEAD = "from transformers.models.qwen3 import modeling_qwen3 as qwen3\n"
#: A layer that computes something else when it is run again.
RECOMPUTES = f"""{HEAD}
class Layer(qwen3.Qwen3DecoderLayer):
    calls = 0
    def forward(self, hidden_states, *args, **kwargs):
        out = super().forward(hidden_states, *args, **kwargs)
        type(self).calls += 1
        return out if type(self).calls % 2 else out + 0 * (out.float() * out.float()).to(out.dtype)
class Own(qwen3.Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.__class__ = Layer
"""
#: A model of images, seen from its language model: what is cut are their placeholders.
IMAGES = f"""{HEAD}
class Inner(qwen3.Qwen3Model):
    def forward(self, input_ids=None, **kwargs):
        if input_ids.shape[-1] < 60:
            words = "Image features and image tokens do not match"
            raise ValueError(words + ", tokens: 9, features: 60")
        return super().forward(input_ids=input_ids, **kwargs)
class Own(qwen3.Qwen3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.model.__class__ = Inner
"""
#: A model that forgets to make its inputs require a gradient.
FORGETS = f"""{HEAD}
class Own(qwen3.Qwen3ForCausalLM):
    def enable_input_require_grads(self):
        pass
"""
SPACES = {
    "variants": {"gradient_checkpointing": ["none", "full", "selective", "reentrant"]},
    "lengths": {"max_length": [24, 36, 48]},
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows, spaces, and a model for every way to fail."""
    folder = tmp_path_factory.mktemp("cases")
    for name, code in (("recomputes", RECOMPUTES), ("images", IMAGES), ("forgets", FORGETS)):
        with_code(tiny_model(folder / name), code, "Own")
    tiny_model(folder / "plain")
    rows = [{"text": " ".join(["word"] * 60)} for _ in range(12)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for name, knobs in SPACES.items():
        space = {"schema_version": 1, "name": name, "trainer": "sft", "describe": "x"}
        text = json.dumps({**space, "knobs": knobs})
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def searched(
    shared: Shared, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., tuple[Said, Result]]:
    """Return a function that searches a space with a model and returns what came of it."""
    command = command_of(shared, monkeypatch, capsys, here)

    def search(model: str, space: str, *more: str) -> tuple[Said, Result]:
        said = command(
            *("run", "--model", model, "--dataset", "rows.jsonl", "--space", f"{space}.yaml"),
            *("--set", "trust_remote_code=true", "--set", "per_device_train_batch_size=2"),
            *("--out", f"out-{model}", "--timeout", "20s", *more),
        )
        return said, read_result(here / f"out-{model}")

    return search


def test_a_variant_of_checkpointing_that_cannot_be_used_is_named_and_others_are_tried(
    searched: Callable[..., tuple[Said, Result]],
) -> None:
    # BC44
    said, result = searched("recomputes", "variants")
    assert 0 == said.code, said.err
    own = result.trials[0].report.ending
    assert (Outcome.INVALID, ("gradient_checkpointing",)) == (own.outcome, own.causes)
    assert "gradient checkpointing variant full (use_reentrant false) cannot be used" in own.reason
    fits = {t.candidate.get("gradient_checkpointing") for t in result.trials if t.estimate}
    assert {"none", "reentrant"} == fits
    assert any("variant selective cannot be used with this model" in n for n in result.notices)


def test_images_that_are_cut_prune_every_shorter_length_after_one_probe(
    searched: Callable[..., tuple[Said, Result]],
) -> None:
    # BC35
    said, result = searched(
        *("images", "lengths", "--trials", "3", "--min-retention", "1%"),
        *("--set", "gradient_checkpointing=false", "--set", "bf16=false"),
    )
    assert 0 == said.code, said.err
    (line,) = [s for s in result.skipped if "too short for images" in s.reason]
    assert line.what.startswith("refused when run: max_length up to ")
    assert 0 == sum("images" in t.report.ending.reason for t in result.trials if t.estimate)
    assert result.best_trial is not None
    assert "out of memory" not in said.err


def test_no_gradient_under_reentrant_checkpointing_is_said_and_other_variants_train(
    searched: Callable[..., tuple[Said, Result]],
) -> None:
    # BC09
    adapters = ("--set", "use_peft=true", "--set", "lora_r=4")
    said, result = searched("forgets", "variants", *adapters)
    assert 0 == said.code, said.err
    (line,) = [s for s in result.skipped if "no gradient reached the adapter" in s.reason]
    assert ("refused when run: gradient_checkpointing reentrant", 1) == (line.what, line.count)
    assert "use_reentrant" in line.reason
    fits = {t.candidate.get("gradient_checkpointing") for t in result.trials if t.estimate}
    assert {"none", "full"} == fits


def test_the_values_in_effect_stand_with_the_answer(
    searched: Callable[..., tuple[Said, Result]],
) -> None:
    # BC41
    said, result = searched("plain", "variants", "--trials", "1", "--set", "optim=sgd")
    assert 0 == said.code, said.err
    assert "in effect, read back from the trainer: padding_free false" in said.out
    assert result.best_trial is not None and result.best_trial.report.measurement is not None
    assert "sgd" == result.best_trial.report.measurement.effective["optim"]
    assert not any("had no effect" in notice for notice in result.notices)


def test_what_is_about_to_be_written_is_built_with_the_installed_trl(
    shared: Shared, tmp_path: Path
) -> None:
    # BC40
    runner, file = Runner(shared, tmp_path), tmp_path / "best.yaml"
    spec = ConstructSpec(trainer=Trainer.SFT, file=str(file), arguments=("--use_cpu", "true"))

    def read(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        runner.construct(spec, deadline_s=600.0)

    read("padding_free: true\nmax_length: null\nbf16: false\nnum_processes: 2\nenv: {A: 1}\n")
    for refused, words in (
        ("bf16: true\nfp16: true\n", "At most one of fp16 and bf16"),
        ("datasets: [{path: json, weight: 1.0}]\n", "weight"),
        ("env: [A]\n", "env"),
        ("bf16: false\nfavourite_colour: blue\n", "favourite_colour"),
    ):
        with pytest.raises(BadInput, match=words):
            read(refused)


def test_no_file_to_train_with_is_left_that_the_installed_trl_refuses(
    shared: Shared, tmp_path: Path
) -> None:
    # BC40
    result, runner = cpu_result(), Runner(shared, tmp_path)
    write_emitted(result, tmp_path)
    require_constructed(result, runner, tmp_path)
    assert (tmp_path / "best.yaml").exists()
    refused = with_job(result, options={**result.job.options, "bf16": True, "fp16": True})
    write_emitted(refused, tmp_path)
    with pytest.raises(ToolFailure, match=r"TRL refuses the config that was found: .*fp16"):
        require_constructed(refused, runner, tmp_path)
    assert not (tmp_path / "best.yaml").exists()
