"""What a model is and what a config cannot train, said before rows are prepared or probes start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.core.result import Result, read_result
from tests.support.models import tiny_model
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration

SMALL: dict[str, dict[str, Any]] = {
    "t5": {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2},
    "bert": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "vit": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "wav2vec2": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    "gpt2": {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2},
}
ARCHITECTURES = {
    "t5": "T5ForConditionalGeneration",
    "bert": "BertForMaskedLM",
    "vit": "ViTForImageClassification",
    "wav2vec2": "Wav2Vec2ForCTC",
    "gpt2": "GPT2LMHeadModel",
    "headless": "LlamaModel",
}
CHAT = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
]
WRONG = [{"role": "assistant", "content": "Perhaps it is Rome."}]


def other_model(folder: Path, kind: str, **more: Any) -> None:
    """Write a model of another architecture with the tiny one's tokenizer."""
    tiny_model(folder)
    vocabulary = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 0}
    config = {
        "model_type": kind,
        "architectures": [ARCHITECTURES[kind]],
        "vocab_size": vocabulary,
        "intermediate_size": 64,
        **ids,
        **SMALL[kind],
        **more,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    for kind in SMALL:
        other_model(folder / kind, kind)
    tiny_model(folder / "plain", max_position_embeddings=64)
    tiny_model(folder / "headless", model_type="llama", architectures=["LlamaModel"])
    written = {
        "chat": [{"messages": CHAT}] * 24,
        "pairs": [{"prompt": CHAT[:1], "chosen": CHAT[1:], "rejected": WRONG}] * 8,
        "long": [{"input_ids": [5 + i % 9 for i in range(600)]}] * 6,
        "one": [{"input_ids": [5, 6, 7, 8]}],
        "three": [{"input_ids": [5, 6, 7, 8 + i]} for i in range(3)],
        "two": [{"input_ids": [5, 6, 7, 8, 9]}, {"input_ids": [5, 6, 7, 8, 9, 10]}],
    }
    for name, rows in written.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


Command = Callable[..., Said]


@pytest.fixture
def command(shared: Shared, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Command:
    return command_of(shared, monkeypatch, capsys, here)


def refused(said: Said) -> str:
    assert 2 == said.code, said.err
    assert "" == said.out
    (error,) = said.errors
    return error


def job(model: str, rows: str, **options: Any) -> tuple[str, ...]:
    sets = (("--set", f"{k}={json.dumps(v)}") for k, v in {"bf16": False, **options}.items())
    return ("--model", model, "--dataset", f"{rows}.jsonl", *(part for one in sets for part in one))


@pytest.mark.parametrize("verb", ["run --dry-run", "predict", "probe", "profile"])
def test_an_encoder_decoder_is_refused_once_before_rows_are_prepared(
    command: Command, verb: str
) -> None:
    """Source: huggingface/autotrain-advanced issue 821."""
    said = command(*verb.split(), *job("t5", "chat"))
    error = refused(said)
    assert "T5ForConditionalGeneration) is an encoder-decoder" in error
    assert "trl sft trains causal language models only" in error
    assert "AutoModelForCausalLM" in error
    assert "preparing" not in said.err.split("error:")[1]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("bert", "BertForMaskedLM) is an encoder"),
        ("vit", "ViTForImageClassification) has no causal language model"),
        ("wav2vec2", "Wav2Vec2ForCTC) has no causal language model"),
        ("headless", "LlamaModel) has no language model's head"),
    ],
)
@pytest.mark.parametrize("trainer", ["sft", "dpo"])
def test_what_is_no_causal_language_model_is_named(
    command: Command, model: str, words: str, trainer: str
) -> None:
    rows = "chat" if trainer == "sft" else "pairs"
    error = refused(command("profile", *job(model, rows), "--trainer", trainer))
    assert words in error
    assert ("trl reward takes this one" in error) == (model in ("bert", "headless"))


@pytest.mark.parametrize("model", ["t5", "bert"])
def test_reward_takes_whatever_has_a_score(command: Command, model: str) -> None:
    said = command(*("probe", *job(model, "pairs"), "--trainer", "reward"), "--repeats", "1")
    assert 0 == said.code, said.err


def test_a_table_of_positions_bounds_the_own_config_and_rotary_ones_are_remarked(
    command: Command,
) -> None:
    """Source: huggingface/trl issue 1867."""
    for verb in ("run --dry-run", "probe", "predict", "run"):
        error = refused(command(*verb.split(), *job("gpt2", "long", max_length=1024)))
        assert "600 tokens long, beyond the model's 64 positions (n_positions)" in error
        assert "Lower max_length" in error
    said = command("run", "--dry-run", *job("plain", "long", max_length=512))
    assert 0 == said.code, said.err
    assert "beyond the model's 64 positions (max_position_embeddings); it computes" in said.out
    length = {"max_length": 60, "pad_to_multiple_of": 64}
    other_model(Path("sixty"), "gpt2", n_positions=60)
    error = refused(command("run", "--dry-run", *job("sixty", "long", **length)))
    assert "widens 60 tokens to 64, beyond the model's 60 positions (n_positions)" in error


def test_a_run_of_no_updates_is_refused(command: Command) -> None:
    """Source: huggingface/trl issue 1337."""
    for verb in ("run", "probe", "predict", "run --dry-run"):
        error = refused(command(*verb.split(), *job("plain", "one", dataloader_drop_last=True)))
        assert "dataloader_drop_last leaves it out" in error
        assert "lower per_device_train_batch_size" in error


@pytest.mark.parametrize(
    ("rows", "options", "batch", "steps", "remark"),
    [
        ("one", {}, 1, 1, "per_device_train_batch_size 8 is more than the 1 rows"),
        ("three", {"gradient_accumulation_steps": 64}, 3, 1, "sees 3 rows, not the 512"),
        (
            "two",
            {"packing": True, "max_length": 64},
            1,
            1,
            "11 tokens: nothing fills a packed row of 64",
        ),
    ],
)
def test_what_is_measured_and_written_is_the_batch_that_is_realised(
    command: Command,
    here: Path,
    rows: str,
    options: dict[str, Any],
    batch: int,
    steps: int,
    remark: str,
) -> None:
    said = command(
        *("run", *job("plain", rows, **options), "--trials", "1", "--space", "quick"),
        *("--memory", "2GiB", "--out", f"out-{rows}"),
    )
    assert 0 == said.code, said.err
    result: Result = read_result(here / f"out-{rows}")
    assert any(remark in notice for notice in result.notices)
    measured = result.trials[0].report.measurement
    assert measured is not None and {batch} == {step.rows for step in measured.memory_steps}
    best = yaml.safe_load((here / f"out-{rows}" / "best.yaml").read_text(encoding="utf-8"))
    assert (batch, steps) == (
        best["per_device_train_batch_size"],
        best.get("gradient_accumulation_steps", 1),
    )


@pytest.mark.parametrize("bits", [{}, {"load_in_8bit": True}])
def test_a_frozen_float16_base_under_adapters_and_bf16_autocast_is_measured(
    command: Command, here: Path, bits: dict[str, bool]
) -> None:
    """Source: the zephyr QLoRA recipe of huggingface/alignment-handbook."""
    options = {"dtype": "float16", "bf16": True, "use_peft": True, **bits}
    said = command(
        *("probe", *job("plain", "pairs", **options), "--trainer", "dpo", "--repeats", "1"),
        *("--format", "json", "--memory", "2GiB"),
    )
    assert 0 == said.code, said.err
    result = Result.model_validate_json(said.out)
    (trial,) = result.trials
    assert trial.report.measurement is not None
    trained = trial.report.measurement.parameters["trainable_dtype"]
    assert trained == ("bfloat16" if bits else "float32")


def test_the_same_over_4bit_weights_is_planned_with_a_remark_on_this_machine(
    command: Command,
) -> None:
    options = {"dtype": "float16", "bf16": True, "use_peft": True, "load_in_4bit": True}
    said = command("run", "--dry-run", *job("plain", "pairs", **options), "--trainer", "dpo")
    assert 0 == said.code, said.err
    assert "4bit weights with dtype float16 fail in torch's bf16 autocast of a CPU" in said.out


def test_names_of_layers_a_model_lacks_are_answered_with_those_it_has(command: Command) -> None:
    lora = {"use_peft": True}
    for targets in (["c_attn", "nope"], ["nope"], ["q_proj"]):
        wanted = {**lora, "lora_target_modules": targets}
        error = refused(command("run", "--dry-run", *job("plain", "chat", **wanted)))
        listed = "q_proj, k_proj, v_proj, o_proj" in error
        assert listed or r"Write .*\.q_proj instead" in error
    some = {**lora, "lora_target_modules": ["q_proj", "v_proj", "nope"]}
    said = command("run", "--dry-run", *job("plain", "chat", **some))
    assert 0 == said.code, said.err
    assert "1 of the 3 names in lora_target_modules match no module of this model" in said.out
    assert "q_proj, k_proj" in said.out


def test_a_tokenizer_larger_than_the_embedding_is_remarked_with_the_remedy(
    command: Command, here: Path
) -> None:
    tiny_model(here / "narrow", vocab_size=100)
    said = command("run", "--dry-run", *job("narrow", "one"))
    assert 0 == said.code, said.err
    assert "the model's embedding" in said.out and "resize_token_embeddings" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "/proc/nowhere/run"), "cannot be made or written to"),
        (("--out", "plain"), "exists and is not empty"),
        (("--storage", "study.db"), "It takes a database URL"),
        (("--storage", "sqlite:///plain/config.json"), "not a database"),
        (("--weights", "real"), "--weights is real, and there are no weights in"),
    ],
)
def test_a_dry_run_checks_what_the_run_would_stop_at(
    command: Command, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(command("run", "--dry-run", *job("plain", "chat"), *arguments))
