"""Conversations in other spellings become what TRL reads, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.dataset import convert
from autotune.dataset.convert import Reading
from autotune.dataset.roles import parse_calls, to_message
from autotune.dataset.tools import is_plain, read_tools

CHAT = Reading(chat=True, render_calls=True)
PLAIN = Reading(chat=False, render_calls=False)


def said(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": value} for speaker, value in turns]


def roles(row: dict[str, Any], column: str = "messages") -> list[str]:
    return [message["role"] for message in row[column]]


def contents(row: dict[str, Any], column: str = "messages") -> list[str]:
    return [message["content"] for message in row[column]]


@pytest.mark.parametrize(
    ("speaker", "role"),
    [
        ("human", "user"),
        ("user", "user"),
        ("gpt", "assistant"),
        ("assistant", "assistant"),
        ("system", "system"),
        ("observation", "tool"),
        ("tool", "tool"),
        ("Human", "user"),
    ],
)
def test_speakers_become_roles(speaker: str, role: str) -> None:
    row = convert.messages({"conversations": said((speaker, "x"))}, 0, CHAT)
    assert {"messages": [{"role": role, "content": "x"}]} == row


def test_a_function_call_becomes_a_tool_call_when_the_template_renders_it() -> None:
    turn = {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}'}
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    expected = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert expected == to_message(turn, "", render_calls=True)


def test_a_function_call_stays_text_when_the_template_would_drop_it() -> None:
    turn = {"from": "function_call", "value": '{"name": "f"}'}
    expected = {"role": "assistant", "content": '{"name": "f"}'}
    assert expected == to_message(turn, "", render_calls=False)


def test_calls_may_be_many_and_their_arguments_a_string() -> None:
    calls = parse_calls('[{"name": "f", "arguments": "{\\"a\\": 1}"}, {"name": "g"}]')
    assert calls is not None
    assert [{"a": 1}, {}] == [call["function"]["arguments"] for call in calls]


@pytest.mark.parametrize("text", ["f(x)", "[]", '{"arguments": {}}', "5", '{"name": 3}'])
def test_what_is_no_call_is_not_taken_for_one(text: str) -> None:
    assert parse_calls(text) is None


def test_an_unknown_speaker_names_the_row_and_those_known() -> None:
    with pytest.raises(BadInput, match="row 3: column 'conversations' has a turn by 'alien'"):
        convert.messages({"conversations": said(("alien", "x"))}, 2, CHAT)


def test_messages_keep_a_role_only_their_template_may_know() -> None:
    turn = {"role": "critic", "content": "x"}
    assert turn == to_message(turn, "", render_calls=True)


def test_instruction_rows_become_messages_with_a_template_and_text_without() -> None:
    row = {"instruction": "Do", "input": "this", "output": "Done"}
    chat = convert.instruction(completion="output")(row, 0, CHAT)
    assert [{"role": "user", "content": "Do\nthis"}] == chat["prompt"]
    assert [{"role": "assistant", "content": "Done"}] == chat["completion"]
    plain = convert.instruction(completion="output")(row, 0, PLAIN)
    assert {"prompt": "Do\nthis\n\n", "completion": "Done"} == plain


def test_an_instruction_row_may_have_a_system_message_and_no_input() -> None:
    row = {"instruction": "Do", "input": None, "output": "Done", "system": "Be"}
    chat = convert.instruction(completion="output")(row, 0, CHAT)
    assert ["system", "user"] == roles(chat, "prompt")
    assert "Do" == chat["prompt"][1]["content"]


def test_preferences_over_conversations_become_three_message_lists() -> None:
    row = {
        "conversations": said(("system", "s"), ("human", "q")),
        "chosen": {"from": "gpt", "value": "a"},
        "rejected": {"from": "gpt", "value": "b"},
    }
    found = convert.answered("conversations")(row, 0, CHAT)
    assert ["system", "user"] == roles(found, "prompt")
    assert [{"role": "assistant", "content": "a"}] == found["chosen"]
    assert [{"role": "assistant", "content": "b"}] == found["rejected"]


def test_a_prompt_that_answers_repeat_is_taken_apart() -> None:
    question, answer = said(("user", "q")), said(("assistant", "a"))
    other = said(("assistant", "b"))
    whole = {"prompt": "q", "chosen": question + answer, "rejected": question + other}
    alone = {"prompt": "q", "chosen": answer, "rejected": other}
    expected = {
        "prompt": [{"role": "user", "content": "q"}],
        "chosen": [{"role": "assistant", "content": "a"}],
        "rejected": [{"role": "assistant", "content": "b"}],
    }
    assert expected == convert.answered("prompt")(whole, 0, CHAT)
    assert expected == convert.answered("prompt")(alone, 0, CHAT)


def test_answers_to_different_prompts_name_the_row() -> None:
    row = {
        "prompt": "q",
        "chosen": said(("user", "q"), ("assistant", "a")),
        "rejected": said(("assistant", "b")),
    }
    with pytest.raises(BadInput, match="row 6: chosen begins with 'user'"):
        convert.answered("prompt")(row, 5, CHAT)


def test_messages_before_whole_conversations_come_before_what_these_share() -> None:
    earlier, question = said(("user", "1"), ("assistant", "2")), said(("user", "3"))
    row = {"chosen": question + said(("gpt", "a")), "rejected": question + said(("gpt", "b"))}
    read = convert.answered("conversations")
    assert ["1", "2", "3"] == contents(read({**row, "conversations": earlier}, 0, CHAT), "prompt")
    assert ["3"] == contents(read({**row, "conversations": question}, 0, CHAT), "prompt")
    copy = question + said(("gpt", "a"))
    assert ["3"] == contents(read({**row, "conversations": copy}, 0, CHAT), "prompt")


def test_texts_are_said_by_the_one_whose_column_they_stand_in() -> None:
    row = {"prompt": said(("user", "q")), "chosen": "a", "rejected": "b"}
    found = convert.answered("prompt")(row, 0, CHAT)
    assert [{"role": "assistant", "content": "b"}] == found["rejected"]
    row = {"prompt": "q", "chosen": said(("gpt", "a")), "rejected": said(("gpt", "b"))}
    assert ["user"] == roles(convert.answered("prompt")(row, 0, CHAT), "prompt")


def test_rows_of_openais_fine_tuning_have_their_prompt_inside_an_object() -> None:
    question, good, bad = said(("user", "q")), said(("gpt", "a")), said(("gpt", "b"))
    row = {"preferred_output": good, "non_preferred_output": bad}
    found = convert.openai_preference({**row, "input": {"messages": question}}, 0, CHAT)
    assert {"prompt": ["user"], "chosen": ["assistant"], "rejected": ["assistant"]} == {
        column: roles(found, column) for column in found
    }
    with pytest.raises(BadInput, match="row 1: column 'input' has tools"):
        tools = {"messages": question, "tools": [{"type": "function"}]}
        convert.openai_preference({**row, "input": tools}, 0, CHAT)
    with pytest.raises(BadInput, match="row 1: column 'input' has no messages"):
        convert.openai_preference({**row, "input": {"text": "q"}}, 0, CHAT)


def test_instructions_may_have_two_answers() -> None:
    row = {"instruction": "Do", "input": "this", "system": "Be", "chosen": "a", "rejected": "b"}
    read = convert.instruction(chosen="chosen", rejected="rejected")
    assert {"prompt": "Be\n\nDo\nthis\n\n", "chosen": "a", "rejected": "b"} == read(row, 0, PLAIN)
    assert ["system", "user"] == roles(read(row, 0, CHAT), "prompt")


def test_a_system_column_opens_conversations_that_have_no_system_message() -> None:
    read = convert.with_beside(convert.messages)
    reading = Reading(chat=True, render_calls=True, system=True)
    plain, own = said(("user", "q")), said(("system", "own"), ("user", "q"))
    assert ["s", "q"] == contents(read({"messages": plain, "system": "s"}, 0, reading))
    assert ["q"] == contents(read({"messages": plain, "system": None}, 0, reading))
    assert ["own", "q"] == contents(read({"messages": own, "system": "s"}, 0, reading))


def test_rated_messages_are_divided_before_the_last() -> None:
    messages = [{"role": r, "content": r} for r in ("user", "assistant", "user", "assistant")]
    found = convert.labelled_messages({"messages": messages, "label": 1}, 0, CHAT)
    assert ["user", "assistant", "user"] == roles(found, "prompt")
    assert ["assistant"] == roles(found, "completion")
    assert found["label"] is True


def test_rated_messages_that_end_with_a_question_name_the_row() -> None:
    messages = [{"role": "user", "content": "q"}]
    with pytest.raises(BadInput, match=r"row 8: .* ends with 'user'"):
        convert.labelled_messages({"messages": messages, "label": True}, 7, CHAT)


def test_bare_schemas_are_wrapped_and_no_tools_are_null() -> None:
    wrapped = [{"type": "function", "function": {"name": "f"}}]
    assert wrapped == read_tools('[{"name": "f"}]', 0)
    assert wrapped == read_tools(wrapped, 0)
    assert wrapped == read_tools(['{"name": "f"}'], 0)
    assert [None] * 3 == [read_tools(value, 0) for value in ("", "[]", None)]


@pytest.mark.parametrize("value", ["[{", '{"x": 1}', "[5]", "3"])
def test_tools_that_are_none_name_the_row(value: str) -> None:
    with pytest.raises(BadInput, match="row 4: column 'tools'"):
        read_tools(value, 3)


def test_only_whole_tools_go_to_trl_as_they_are() -> None:
    assert is_plain(None)
    assert is_plain('[{"type": "function", "function": {"name": "f"}}]')
    assert not is_plain("[]")
    assert not is_plain('[{"name": "f"}]')
    assert not is_plain("[{")
