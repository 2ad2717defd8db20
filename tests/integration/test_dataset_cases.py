"""Practitioners' failures BC03, BC04, BC06, BC15, BC27, BC28 and BC32, one stop or remark each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource, Trainer
from autotune.dataset.prepare import prepare
from tests.integration.test_dataset_prepare import (
    BOT,
    USER,
    Prepare,
    cache,
    codes,
    lengths_of,
    run,
    text_of,
    tokenizers,
)
from tests.support.tiny_tokenizer import tiny_config

pytestmark = pytest.mark.integration
__all__ = ["cache", "run", "tokenizers"]  # fixtures, found by name

CHAT = [{"messages": [USER, BOT]}] * 4


def refusal(run: Prepare, rows: Any, **changes: Any) -> str:
    with pytest.raises(BadInput) as caught:
        run(rows, **changes)
    assert 2 == caught.value.exit_code
    return str(caught.value)


@pytest.mark.parametrize(
    ("rows", "trainer"),
    [
        ([{"instruction": "i", "output": "o"}] * 4, Trainer.SFT),
        ([{"Text": "t"}] * 4, Trainer.SFT),
        ([{"prompt": "q"}] * 4, Trainer.SFT),
        ([{"text": "t"}] * 4, Trainer.DPO),
        ([{"text": "t"}] * 4, Trainer.REWARD),
    ],
)
def test_bc03_wrong_columns_are_one_sentence_before_anything_starts(
    run: Prepare, rows: list[Any], trainer: Trainer
) -> None:
    message = refusal(run, rows, trainer=trainer)
    assert "Found: " in message
    assert f"Accepted for {trainer.value}: " in message
    assert "The closest layout is" in message


def test_bc03_an_unknown_split_names_those_there_are(run: Prepare) -> None:
    assert "it has 'train'" in refusal(run, CHAT, split="validation")


def test_bc04_a_conversation_without_a_template_offers_both_remedies(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    message = refusal(run, CHAT, tokenizer="no_template")
    assert "conversational" in message
    assert str(tokenizers["no_template"]) in message
    assert "chat_template_path" in message
    assert "text column" in message


def test_bc04_a_template_the_user_names_is_used(run: Prepare, tokenizers: dict[str, Path]) -> None:
    expected = run(CHAT).tokens
    for path in (tokenizers["whole"], tokenizers["whole"] / "chat_template.jinja"):
        options = {"chat_template_path": str(path)}
        assert expected == run(CHAT, tokenizer="no_template", options=options).tokens


def test_bc04_text_needs_no_template(run: Prepare) -> None:
    assert 1 == run([{"text": "plain"}], tokenizer="no_template").rows_used


def test_bc06_the_default_of_1024_is_said_first_when_it_would_cut(run: Prepare) -> None:
    rows = [{"input_ids": [5] * 1500}] * 10
    profile = run(rows)
    first = profile.notices[0]
    assert ("implicit-max-length", 10) == (first.code, first.count)
    assert "1024 cuts 10 of 10 rows and drops 31.7 % of all tokens" in first.message
    assert "implicit-max-length" not in codes(run(rows, options={"max_length": 2048}))
    assert "implicit-max-length" not in codes(run(rows, options={"max_length": None}))
    lengths = lengths_of(profile)
    assert [1536] == lengths.max_length_choices(profile.model_positions, 0.99, None)
    assert 10 == lengths.rows_cut(512)
    assert 1 / 3 < lengths.retention_ratio(512) < 0.35


def test_bc15_the_end_token_pads_when_there_is_no_other_and_that_is_said(run: Prepare) -> None:
    profile = run([{"text": "a"}] * 4, tokenizer="no_pad")
    assert "'</s>' (the end-of-sequence token: the tokenizer has no pad token)" == profile.pad_token


def test_bc15_without_pad_and_end_token_it_stops_in_these_words(run: Prepare) -> None:
    for rows in ([{"text": "a"}] * 4, CHAT, [{"input_ids": [1, 2]}] * 4):
        message = refusal(run, rows, tokenizer="neither")
        assert "has neither pad nor eos token; set one" in message
        assert "None" not in message


def test_bc15_text_without_an_end_token_stops(run: Prepare) -> None:
    assert "no eos token" in refusal(run, [{"text": "a"}], tokenizer="no_eos")
    assert 4 == run(CHAT, tokenizer="no_eos").rows_used
    assert 1 == run([{"text": "a"}], tokenizer="neither", options={"eos_token": "</s>"}).rows_used


def test_bc15_a_token_the_vocabulary_lacks_stops(run: Prepare) -> None:
    message = refusal(run, [{"text": "a"}], options={"pad_token": "<none>"})
    assert "pad_token is '<none>'" in message


def test_bc27_mixed_and_null_schemas(run: Prepare, tmp_path: Path) -> None:
    null = {"role": "assistant", "content": None}
    profile = run([{"messages": [USER, null]}, *CHAT])
    assert ["empty-assistant-turn"] == codes(profile)
    assert (5, 5) == (profile.rows_given, profile.rows_used)
    assert "'text' is null in 1 of 2 rows, first in row 2" in refusal(
        run, [{"text": "a"}, {"text": None}]
    )
    assert "first in row 2" in refusal(run, [CHAT[0], {"messages": []}])
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "a"}\n{"text":\n', encoding="utf-8")
    assert "line 2" in refusal(run, broken)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    assert "is empty" in refusal(run, empty)


def test_bc27_arguments_that_change_type_train_as_they_are(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    def calling(value: Any) -> dict[str, Any]:
        call = {"type": "function", "function": {"name": "f", "arguments": {"t": value}}}
        return {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]}

    profile = run([calling("x"), calling(5)])
    assert '"arguments": {"t": "x"}' in text_of(profile, tokenizers["whole"], 0)
    assert '"arguments": {"t": 5}' in text_of(profile, tokenizers["whole"], 1)


@pytest.mark.parametrize("speakers", [("human", "gpt"), ("user", "assistant")])
def test_bc28_conversations_are_converted_and_that_is_said(
    run: Prepare, tokenizers: dict[str, Path], speakers: tuple[str, str]
) -> None:
    turns = [{"from": who, "value": "x"} for who in speakers]
    profile = run([{"conversations": turns}] * 4)
    assert str(profile.conversion).startswith("conversations to role/content messages")
    text = text_of(profile, tokenizers["whole"])
    assert "<|im_start|>user" in text
    assert "<|im_start|>assistant" in text


def test_bc28_an_unknown_key_is_named(run: Prepare) -> None:
    message = refusal(run, [{"messages": [{"speaker": "user", "content": "x"}]}])
    assert "unknown key 'speaker'" in message


def test_bc28_a_late_change_of_kind_is_found(run: Prepare) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    rows = [{"conversations": turns}] * 1200 + [{"conversations": "a string"}]
    assert "first in row 1201" in refusal(run, rows)


def test_bc32_tokenised_rows(run: Prepare) -> None:
    assert ("tokenised", 5) == (
        run([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}]).layout,
        run([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}]).tokens,
    )
    short = [{"input_ids": [1, 2, 3], "labels": [1, 2]}]
    assert "row 1 has 3 input_ids but 2 labels" in refusal(run, short)
    masked = [{"input_ids": [1, 2, 3], "labels": [-100] * 3}] * 2
    assert "row 1 has 3 tokens and 3 labels of -100" in refusal(run, masked)
    assert "token id 400" in refusal(run, [{"input_ids": [1, 400]}])


def test_bc32_pre_padded_rows_are_warned_of_and_pads_are_not_useful(run: Prepare) -> None:
    rows = [{"input_ids": [5, 6, 7] + [0] * 29, "attention_mask": [1] * 3 + [0] * 29}] * 2
    profile = run(rows)
    assert ["pre-padded"] == codes(profile)
    assert 64 == profile.tokens
    assert 6 == lengths_of(profile).useful(None).sum()


def test_bc32_skipping_preparation_of_text_is_explained(run: Prepare) -> None:
    options = {"dataset_kwargs": {"skip_prepare_dataset": True}}
    message = refusal(run, [{"text": "a"}], options=options)
    assert "not tokenised" in message
    assert "skip_prepare_dataset" in message
    masks = [{"input_ids": [1, 2], "completion_mask": [0, 1]}]
    assert "completion_mask" in refusal(run, masks, options=options)
    assert 1 == run([{"input_ids": [1, 2]}], options=options).rows_used


def test_rows_beyond_the_models_positions_are_counted(run: Prepare) -> None:
    profile = run([{"input_ids": [5] * 30}] * 3, model_config=tiny_config(positions=20))
    assert ["beyond-positions"] == codes(profile)
    assert (20, 30) == (profile.model_positions, profile.quantiles["1.0"])


def test_a_missing_data_set_is_one_sentence(tmp_path: Path, tokenizers: dict[str, Path]) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        prepare(
            DatasetSource(path=str(tmp_path / "none.jsonl")),
            trainer=Trainer.SFT,
            tokenizer_dir=tokenizers["whole"],
            model_config=tiny_config(),
            options={},
            out_dir=tmp_path / "out",
            cache_dir=tmp_path / "cache",
        )
