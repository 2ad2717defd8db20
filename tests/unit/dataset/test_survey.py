"""Every row is read once before anything starts: stops with a row number, counted remarks."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset, Features, Json, List, Value

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.dataset.recognise import recognise
from autotune.dataset.survey import Survey, survey_rows

USER = {"role": "user", "content": "q"}
BOT = {"role": "assistant", "content": "a"}


def survey(rows: Dataset | list[dict[str, Any]], trainer: str = "sft") -> Survey:
    table = rows if isinstance(rows, Dataset) else Dataset.from_list(rows)
    layout, columns = recognise(table, Trainer(trainer), "text")
    return survey_rows(table, layout, columns, "text", Trainer(trainer))


def refusal(rows: Dataset | list[dict[str, Any]], trainer: str = "sft") -> str:
    with pytest.raises(BadInput) as caught:
        survey(rows, trainer)
    return str(caught.value)


def counts(found: Survey) -> dict[str, int | None]:
    return {notice.code: notice.count for notice in found.notices()}


def free(name: str, *values: Any) -> Dataset:
    features = Features({name: List(Json())})
    return Dataset.from_dict({name: list(values)}, features=features)


def test_an_empty_assistant_turn_is_counted_not_stopped() -> None:
    # BC27 (a)
    null = {"role": "assistant", "content": None}
    found = survey([{"messages": [USER, null]}, {"messages": [USER, BOT]}] * 2)
    assert {"empty-assistant-turn": 2} == counts(found)
    assert "first in row 1" in found.notices()[0].message


def test_an_assistant_turn_that_calls_a_tool_is_not_empty() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"t": 5}}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    found = survey(free("messages", [USER, turn]))
    assert {} == counts(found)


def test_a_null_text_stops_with_field_row_and_count() -> None:
    # BC27 (b)
    message = refusal([{"text": "a"}, {"text": None}, {"text": "b"}, {"text": None}])
    assert "'text' is null in 2 of 4 rows, first in row 2" in message


def test_an_empty_conversation_stops_with_field_and_row() -> None:
    # BC27 (d)
    message = refusal([{"messages": [USER, BOT]}, {"messages": []}])
    assert "'messages' is an empty list in 1 of 2 rows, first in row 2" in message


def test_a_null_conversation_stops_with_field_and_row() -> None:
    assert "'messages' is null" in refusal([{"messages": [USER, BOT]}, {"messages": None}])


@pytest.mark.parametrize("column", ["prompt", "completion"])
def test_a_null_side_stops(column: str) -> None:
    rows = [{"prompt": "q", "completion": "a"}, {"prompt": "q", "completion": "a", column: None}]
    assert f"'{column}' is null in 1 of 2 rows, first in row 2" in refusal(rows)


def test_a_null_input_stands_for_none_in_instruction_rows() -> None:
    rows = [
        {"instruction": "i", "input": None, "output": "o"},
        {"instruction": "i", "input": "x", "output": ""},
    ]
    assert {"empty-completion": 1} == counts(survey(rows))


def test_a_null_label_stops() -> None:
    rows = [{"prompt": "q", "completion": "a", "label": label} for label in (True, None)]
    assert "'label' is null" in refusal(rows, "kto")


def test_content_that_is_no_text_stops_with_row_and_turn() -> None:
    message = refusal(free("messages", [USER, BOT], [USER, {"role": "assistant", "content": 5}]))
    assert "row 2: turn 2 of column 'messages' has a number as its content" in message


def test_a_message_whose_text_has_another_name_stops_with_the_keys() -> None:
    # BC28, the other key: templates render nothing for it, and nothing would be trained
    message = refusal([{"messages": [{"role": "user", "text": "q"}]}])
    assert "row 1: turn 1 of column 'messages' has the keys 'role', 'text'" in message
    assert "expected 'role' and 'content'" in message


def test_empty_texts_are_counted() -> None:
    assert {"empty-text": 2} == counts(survey([{"text": ""}, {"text": "a"}, {"text": " \n"}]))


def test_conversations_without_an_answer_are_counted() -> None:
    assert {"no-assistant-turn": 1} == counts(survey([{"messages": [USER]}, {"messages": [BOT]}]))


def test_equal_answers_are_counted() -> None:
    rows = [{"prompt": "q", "chosen": "a", "rejected": r} for r in ("a", "b")]
    assert {"same-answers": 1} == counts(survey(rows, "dpo"))


def test_a_function_call_that_is_no_json_is_counted() -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "function_call", "value": "f(x)"}]
    found = survey([{"conversations": turns}])
    assert {"unread-call": 1} == counts(found)
    assert found.calls


def test_broken_tools_stop_with_the_row() -> None:
    rows = [{"messages": [USER, BOT], "tools": tools} for tools in ("[]", '[{"name": ')]
    assert "row 2: column 'tools' is not JSON" in refusal(rows)


def test_tools_that_trl_would_trip_over_are_to_be_read() -> None:
    bare = '[{"name": "f", "parameters": {}}]'
    whole = '[{"type": "function", "function": {"name": "f"}}]'
    assert not survey([{"messages": [USER, BOT], "tools": bare}]).plain_tools
    assert not survey([{"messages": [USER, BOT], "tools": ""}]).plain_tools
    assert survey([{"messages": [USER, BOT], "tools": whole}]).plain_tools


def test_aliases_of_roles_are_to_be_read_and_roles_are_not() -> None:
    assert survey([{"messages": [{"role": "human", "content": "q"}]}]).aliases
    assert survey([{"conversations": [{"from": "user", "value": "q"}]}]).aliases
    assert survey([{"messages": [USER, {"role": "ai", "content": "a"}]}]).aliases
    assert not survey([{"messages": [{"role": "developer", "content": "q"}, USER]}]).aliases


def test_columns_trl_would_misread_are_in_the_way() -> None:
    found = survey([{"prompt": "q", "messages": [USER, BOT], "id": 3}])
    assert ("prompt",) == found.in_the_way


def test_a_class_label_beside_text_is_in_the_way() -> None:
    # TRL would take a column called labels for token labels
    assert ("labels",) == survey([{"text": "a", "labels": 1}]).in_the_way


def test_labels_beside_ids_must_be_lists() -> None:
    message = refusal([{"input_ids": [1, 2], "labels": "positive"}])
    assert "column 'labels' beside input_ids holds text" in message


def test_text_of_a_free_column_is_read_too() -> None:
    rows = Dataset.from_dict({"text": ["a", None]}, features=Features({"text": Value("string")}))
    assert "null in 1 of 2 rows" in refusal(rows)


PAIR = {"prompt": "q", "chosen": "good", "rejected": "bad"}
RATED = {"prompt": "q", "completion": "a"}


def test_pairs_that_are_all_alike_stop() -> None:
    assert "all 3 rows" in refusal([{**PAIR, "rejected": "good"}] * 3, "dpo")


def test_some_pairs_alike_are_counted() -> None:
    found = survey([PAIR, {**PAIR, "rejected": "good"}], "reward")
    assert {"same-answers": 1} == counts(found)


def test_an_empty_answer_is_counted_by_its_side() -> None:
    found = survey([PAIR, {**PAIR, "chosen": ""}, {**PAIR, "chosen": "", "rejected": ""}], "dpo")
    assert {"empty-chosen": 2, "empty-rejected": 1, "same-answers": 1} == counts(found)


@pytest.mark.parametrize("label", [2, 0.5, -1])
def test_a_rating_that_is_neither_true_nor_false_stops(label: float) -> None:
    said = refusal([{**RATED, "label": type(label)(1)}, {**RATED, "label": label}], "kto")
    assert "row 2" in said and "true or false" in said


@pytest.mark.parametrize("labels", [[True, False], [1, 0], [1.0, 0.0]])
def test_ratings_may_be_ones_and_zeros(labels: list[float]) -> None:
    assert {} == counts(survey([{**RATED, "label": label} for label in labels], "kto"))


def test_ratings_that_are_all_the_same_are_remarked() -> None:
    found = survey([{**RATED, "label": True}] * 3, "kto")
    assert {"one-sided-labels": 3} == counts(found)
