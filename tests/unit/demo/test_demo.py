"""The embedded demo: its committed files are the made ones, and they have the promised shape."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tokenizers import Tokenizer

from autotune import demo
from autotune.core.errors import BadInput
from autotune.core.packing import pack
from autotune.demo import make
from autotune.demo.model import materialise_model

MESSAGE_TOKENS = 2  # every message is its role token, its text, its end token
MIB = 2**20


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    lines = demo.rows_path().read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(demo.DEMO_DIR / "tokenizer.json"))


@pytest.fixture(scope="module")
def lengths(rows: list[dict[str, Any]], tokenizer: Tokenizer) -> list[int]:
    return [
        sum(MESSAGE_TOKENS + len(tokenizer.encode(m["content"]).ids) for m in row["messages"])
        for row in rows
    ]


def test_the_committed_rows_are_the_made_ones() -> None:
    assert make.rows_jsonl(make.rows()) == demo.rows_path().read_text(encoding="utf-8")


def test_the_committed_tokenizer_is_the_one_trained_on_the_rows() -> None:
    # Compared by meaning: another tokenizers version may write the same thing in another order.
    committed = json.loads((demo.DEMO_DIR / "tokenizer.json").read_text(encoding="utf-8"))
    assert json.loads(make.tokenizer_json(make.rows())) == committed


def test_the_committed_tokenizer_config_is_the_made_one() -> None:
    text = (demo.DEMO_DIR / "tokenizer_config.json").read_text(encoding="utf-8")
    assert make.tokenizer_config() == json.loads(text)


def test_the_tokenizer_loses_nothing(tokenizer: Tokenizer) -> None:
    text = "Prices: 3 € or 20 %, naïve?\n\tYes.  <|odd|>"
    assert text == tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)


def test_the_model_has_room_for_every_token_and_agrees_on_the_special_ones(
    tokenizer: Tokenizer,
) -> None:
    config = json.loads((demo.DEMO_DIR / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] >= tokenizer.get_vocab_size()
    assert config["pad_token_id"] == tokenizer.token_to_id(make.PAD_TOKEN)
    assert config["eos_token_id"] == tokenizer.token_to_id(make.END_TOKEN)


def test_the_longest_row_is_last_and_the_only_one_of_its_length(lengths: list[int]) -> None:
    assert max(lengths) == lengths[-1]
    assert Counter(lengths)[lengths[-1]] == 1


def test_most_rows_are_short_and_a_few_are_very_long(lengths: list[int]) -> None:
    assert 300 <= len(lengths) <= 600
    assert statistics.mean(lengths) > 1.5 * statistics.median(lengths)
    assert max(lengths) > 15 * statistics.median(lengths)


def test_no_row_is_longer_than_the_default_max_length(lengths: list[int]) -> None:
    # TRL's default of 1024: then padding-free, which needs max_length null, trains the same tokens.
    assert max(lengths) <= 1024


def test_no_two_rows_ask_the_same_single_question(rows: list[dict[str, Any]]) -> None:
    asked = Counter(row["messages"][0]["content"] for row in rows if len(row["messages"]) == 2)
    assert [question for question, times in asked.items() if times > 1] == []


def test_packing_to_a_power_of_two_from_128_up_cannot_hold_eight_sequences(
    lengths: list[int],
) -> None:
    # Else one packed row per micro-step would win, and the best batch would be 1.
    for max_length in (128, 256, 512, 1024):
        per_row = len(lengths) / len(pack(np.array(lengths), max_length, "bfd_split"))
        held = [n for n in range(1, 9) if abs(n * per_row / 8 - 1) <= 0.1]
        assert held == [], f"max_length {max_length} holds {per_row:.2f} sequences a row"


def test_the_base_config_is_plain_trl_with_its_reasons() -> None:
    config = yaml.safe_load(demo.base_config_path().read_text(encoding="utf-8"))
    assert config["per_device_train_batch_size"] == 8
    assert config["bf16"] is False
    assert "use_cpu" not in config


def test_the_demo_stays_small_enough_for_a_wheel() -> None:
    files = [path for path in demo.DEMO_DIR.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1.5 * MIB


def test_importing_the_demo_imports_no_heavy_library() -> None:
    code = (
        "import sys, autotune.demo, autotune.demo.model, autotune.demo.make;"
        "print([m for m in ('torch', 'transformers', 'tokenizers', 'trl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_directory_that_the_demo_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me", encoding="utf-8")
    with pytest.raises(BadInput, match="is not this version's demo model"):
        materialise_model(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
