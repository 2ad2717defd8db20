"""Texts are found again in what ids spell, however a template writes them, and only there."""

from __future__ import annotations

import pytest
from datasets import Dataset

from autotune.dataset.leaves import Place, leaves_of
from autotune.dataset.parts import odd_type, text_of
from autotune.dataset.survival import _paired
from autotune.dataset.traces import Fate, Spelled

TURN = {"role": "assistant", "content": None, "reasoning": "so I think", "id": "x1"}


@pytest.mark.parametrize(
    ("fate", "text", "spelled"),
    [
        (Fate.WHOLE, " two\n  lines ", "<s>two lines</s>"),
        (Fate.WHOLE, 'he said "no"\n', r'{"said": "he said \"no\"\n"}'),
        (Fate.WHOLE, "Größe", '{"a": "Gr\\u00f6\\u00dfe"}'),
        (Fate.WHOLE, "Cafe\u0301", "<s>Caf\u00e9</s>"),
        (Fate.WHOLE, '{"name": "f", "arguments": {"city": "Oslo"}}', "<call>f(city=Oslo)"),
        (Fate.CHANGED, "LARGE Letters", "large letters"),
        (Fate.PARTLY, "<think>\nfirst thoughts\n</think>\nthe answer", "<s>the answer</s>"),
        (Fate.LOST, "never said at all", "<s>something else</s>"),
        (Fate.LOST, "{not json", "<s>something else</s>"),
    ],
)
def test_a_text_has_one_fate(fate: Fate, text: str, spelled: str) -> None:
    assert fate is Spelled(spelled).fate_of(text, None)


def test_a_text_the_tokenizer_spells_otherwise_is_changed() -> None:
    assert Fate.CHANGED is Spelled("a [UNK] c").fate_of("a 行 c", lambda _: "a [UNK] c")


def test_every_text_of_a_message_has_a_place_and_names_of_things_are_none() -> None:
    call = {"type": "function", "id": "c1", "function": {"name": "f", "arguments": "{}"}}
    row = {
        "messages": [{"from": "gpt", "value": "hi"}, {**TURN, "tool_calls": [call]}],
        "meta": {"source": "web", "type": "t", "tags": ["a", " "]},
    }
    expected = [
        ("messages[].value (assistant)", "hi"),
        ("messages[].reasoning (assistant)", "so I think"),
        ("messages[].tool_calls (assistant)", "f"),
        ("messages[].tool_calls (assistant)", "{}"),
        ("column 'meta'", "web"),
        ("column 'meta'", "a"),
    ]
    found = leaves_of(row, frozenset({"messages"}))
    assert expected == [(str(leaf.place), leaf.text) for leaf in found]


def test_turns_of_a_prompt_are_context_and_no_answers() -> None:
    assert Place("messages", "content", "assistant").is_answer
    assert Place("history", role="assistant").is_answer
    assert Place("completion").is_answer
    assert not Place("prompt", "content", "assistant").is_answer
    assert not Place("messages", "content", "user").is_answer


def test_parts_of_text_alone_are_one_text() -> None:
    parts = [{"type": "text", "text": "a", "image": None}, "b", {"type": "input_text", "text": "c"}]
    assert "a\nb\nc" == text_of(parts)
    assert odd_type(parts) is None
    assert "image_url" == odd_type([*parts, {"type": "image_url"}])
    assert text_of([*parts, {"type": "thinking", "thinking": "x"}]) is None


def test_rows_kto_makes_of_pairs_are_put_side_by_side_again() -> None:
    # TRL unpairs in batches: here of two rows and of one
    made = Dataset.from_dict(
        {
            "prompt_ids": [[0], [1], [0], [1], [2], [2]],
            "completion_ids": [[10], [11], [20], [21], [12], [22]],
            "label": [True, True, False, False, True, False],
        }
    )
    whole, sides = _paired(made, ("prompt_ids", "completion_ids"))
    assert (("prompt_ids", "completion_ids"), ("prompt_ids", "other")) == sides
    expected = [([n], [10 + n], [20 + n]) for n in range(3)]
    found = whole.select_columns(["prompt_ids", "completion_ids", "other"])
    assert expected == [tuple(row.values()) for row in found]
