"""Layouts are recognised over all rows, and what is not one is answered with the way to one."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset, Json, List

from autotune.core.errors import BadInput, NotBuiltYet
from autotune.core.job import Trainer
from autotune.dataset.layouts import LAYOUTS, accepted
from autotune.dataset.recognise import recognise

USER = {"role": "user", "content": "q"}
BOT = {"role": "assistant", "content": "a"}
HUMAN = {"from": "human", "value": "q"}
GPT = {"from": "gpt", "value": "a"}


def layout_of(rows: list[dict[str, Any]], trainer: str, text_field: str = "text") -> str:
    return recognise(Dataset.from_list(rows), Trainer(trainer), text_field)[0].name


def refusal(rows: Dataset | list[dict[str, Any]], trainer: str = "sft") -> str:
    table = rows if isinstance(rows, Dataset) else Dataset.from_list(rows)
    with pytest.raises(BadInput) as caught:
        recognise(table, Trainer(trainer), "text")
    return str(caught.value)


@pytest.mark.parametrize(
    ("layout", "trainer", "row"),
    [
        ("tokenised", "sft", {"input_ids": [1, 2]}),
        ("tokenised", "sft", {"input_ids": [1, 2], "labels": [1, 2], "text": "x"}),
        ("messages", "sft", {"messages": [USER, BOT]}),
        ("messages", "sft", {"messages": [USER, BOT], "label": True}),
        ("messages", "sft", {"prompt": "q", "messages": [USER, BOT]}),
        ("conversations", "sft", {"conversations": [HUMAN, GPT], "tools": "[]"}),
        ("conversations", "sft", {"conversations": [USER, BOT]}),
        ("prompt-completion", "sft", {"prompt": "q", "completion": "a"}),
        ("prompt-completion", "sft", {"prompt": [USER], "completion": [BOT]}),
        ("instruction/input/output", "sft", {"instruction": "i", "input": "", "output": "o"}),
        ("text", "sft", {"text": "t", "id": 3}),
        ("preference", "dpo", {"prompt": "q", "chosen": "a", "rejected": "b"}),
        ("preference", "reward", {"prompt": [USER], "chosen": [BOT], "rejected": [BOT]}),
        (
            "preference of text and messages",
            "dpo",
            {"prompt": "q", "chosen": [USER, BOT], "rejected": [USER, BOT], "messages": [USER]},
        ),
        (
            "preference of text and messages",
            "kto",
            {"prompt": [USER], "chosen": "a", "rejected": "b"},
        ),
        (
            "preference of text and messages",
            "reward",
            {"prompt": "q", "chosen": BOT, "rejected": BOT},
        ),
        ("messages preference", "dpo", {"messages": [USER], "chosen": BOT, "rejected": BOT}),
        (
            "conversation preference",
            "dpo",
            {"conversations": [HUMAN], "chosen": "a", "rejected": "b"},
        ),
        (
            "instruction preference",
            "dpo",
            {"instruction": "i", "input": None, "chosen": "a", "rejected": "b"},
        ),
        (
            "OpenAI preference",
            "dpo",
            {
                "input": {"messages": [USER], "tools": []},
                "preferred_output": [BOT],
                "non_preferred_output": [BOT],
            },
        ),
        ("rated instruction", "kto", {"instruction": "i", "output": "a", "label": True}),
        ("preference with implicit prompt", "dpo", {"chosen": "qa", "rejected": "qb"}),
        ("preference with implicit prompt", "reward", {"chosen": [BOT], "rejected": [BOT]}),
        (
            "conversation preference",
            "dpo",
            {"conversations": [HUMAN], "chosen": GPT, "rejected": GPT},
        ),
        ("rated messages", "kto", {"messages": [USER, BOT], "label": True}),
        ("rated completion", "kto", {"prompt": "q", "completion": "a", "label": False}),
        ("prompt-only", "grpo", {"prompt": "q"}),
    ],
)
def test_every_layout_is_recognised(layout: str, trainer: str, row: dict[str, Any]) -> None:
    assert layout == layout_of([row, row], trainer)


def test_the_text_column_may_have_any_name() -> None:
    assert "text" == layout_of([{"body": "x"}], "sft", text_field="body")


def test_every_layout_of_the_table_has_a_trainer_and_a_name_of_its_own() -> None:
    assert len(LAYOUTS) == len({layout.name for layout in LAYOUTS})
    assert all(layout.trainers for layout in LAYOUTS)
    assert all(accepted(trainer) for trainer in Trainer)


@pytest.mark.parametrize(
    ("row", "trainer", "words"),
    [
        # BC03, first to fourth variant
        (
            {"instruction": "i", "output": "o"},
            "sft",
            [
                "instruction (text), output (text)",
                "text",
                "messages",
                "prompt + completion",
                "input_ids",
                "rename 'instruction' to 'prompt'",
                "rename 'output' to 'completion'",
            ],
        ),
        ({"Text": "t"}, "sft", ["rename 'Text' to 'text'", "dataset_text_field=Text"]),
        ({"question": "q", "answer": "a"}, "sft", ["'question' to 'prompt'", "'answer' to"]),
        ({"prompt": "q"}, "sft", ["add a column 'completion'", "prompt-only"]),
        ({"text": "t"}, "dpo", ["chosen + rejected", "These are text rows", "--trainer sft"]),
        ({"messages": [USER, BOT]}, "reward", ["chosen + rejected", "--trainer sft"]),
        (
            {"prompt": "q", "chosen": "a", "rejected": "b"},
            "sft",
            ["These are preference rows", "--trainer dpo or kto or reward"],
        ),
        ({"text": 5}, "sft", ["text (a number)", "make column 'text' hold text"]),
        ({"prompt": "q", "completion": [BOT]}, "sft", ["all text or all messages"]),
        ({"input_ids": [[1, 2]]}, "sft", ["make column 'input_ids' hold a list of whole numbers"]),
        ({"messages": "[]"}, "sft", ["make column 'messages' hold"]),
        ({"Messages": [USER, BOT]}, "sft", ["rename 'Messages' to 'messages'"]),
        (
            {"conversations": [HUMAN], "chosen": "a", "rejected": BOT},
            "dpo",
            ["all text or all messages"],
        ),
        (
            {"conversations": [HUMAN, GPT], "kto_tag": True},
            "kto",
            ["rename 'kto_tag' to 'label'"],
        ),
        ({"data": [{"text": "t"}]}, "sft", ["lie under 'data' of one document"]),
        ({"text;label": "t;1"}, "sft", ["separated by ';'", ".tsv"]),
        ({"input": "i", "output": "o"}, "sft", ["'input' to 'prompt'", "'output' to 'completion'"]),
        (
            {"instruction": "i", "context": "c", "response": "r"},
            "sft",
            ["'instruction' to 'prompt'", "'response' to 'completion'"],
        ),
    ],
)
def test_wrong_columns_are_answered_with_the_way_out(
    row: dict[str, Any], trainer: str, words: list[str]
) -> None:
    message = refusal([row] * 4, trainer)
    assert [] == [word for word in words if word not in message], message


@pytest.mark.parametrize("beside", ["test", "version"])
def test_a_whole_document_read_as_one_row_is_answered_with_where_its_rows_lie(beside: str) -> None:
    # BC03, fifth variant: every split, or a header, in one JSON file
    lies: Any = {"test": [{"text": "t"}], "version": "1"}[beside]
    message = refusal([{"train": [{"text": "t"}], beside: lies}])
    assert "The rows seem to lie under 'train'" in message
    assert "what is under 'train' as a JSON list" in message


def test_messages_with_an_unknown_key_name_the_key_and_those_expected() -> None:
    # BC28, last variant
    message = refusal([{"messages": [{"speaker": "user", "content": "q"}]}])
    assert "unknown key 'speaker'" in message
    assert "'role' and 'content'" in message


def test_a_column_that_changes_kind_late_names_the_row() -> None:
    # BC28: a list in most rows, a plain string from some row on
    rows = [{"conversations": [HUMAN, GPT]}] * 2500 + [{"conversations": "text"}] * 3
    table = Dataset.from_dict(
        {"conversations": [row["conversations"] for row in rows]},
        features=_json_column("conversations"),
    )
    message = refusal(table)
    assert "row 2501" in message
    assert "in 3" in message


def test_turns_and_messages_mixed_in_one_row_name_the_row() -> None:
    table = Dataset.from_dict(
        {"messages": [[USER, BOT], [USER, GPT]]}, features=_json_list_column("messages")
    )
    assert "row 2" in refusal(table)


def test_rows_with_pictures_are_refused_by_name() -> None:
    with pytest.raises(NotBuiltYet, match="images"):
        recognise(Dataset.from_list([{"messages": [USER], "image": "x.png"}]), Trainer.SFT, "text")


def _json_column(name: str) -> Any:
    from datasets import Features

    return Features({name: Json()})


def _json_list_column(name: str) -> Any:
    from datasets import Features

    return Features({name: List(Json())})
