"""Pairs of answers: prompts that are missing, said twice, or cannot be found; margins."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import Dataset

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.dataset.convert import Reading, sides, with_beside
from autotune.dataset.recognise import recognise
from autotune.dataset.survey import Survey, survey_rows

USER = {"role": "user", "content": "q"}
GOOD = {"role": "assistant", "content": "a"}
BAD = {"role": "assistant", "content": "b"}


def survey(rows: list[dict[str, Any]], trainer: Trainer = Trainer.DPO) -> Survey:
    table = Dataset.from_list(rows)
    layout, columns = recognise(table, trainer, "text")
    return survey_rows(table, layout, columns, "text", trainer)


def remarked(rows: list[dict[str, Any]], trainer: Trainer = Trainer.DPO) -> dict[str, int | None]:
    return {notice.code: notice.count for notice in survey(rows, trainer).notices()}


def refusal(rows: list[dict[str, Any]], trainer: Trainer = Trainer.DPO) -> str:
    with pytest.raises(BadInput) as caught:
        survey(rows, trainer)
    return str(caught.value)


def test_texts_with_nothing_in_common_have_no_prompt() -> None:
    rows = [{"chosen": "question yes", "rejected": "question no"}, {"chosen": "a", "rejected": "b"}]
    assert {"no-prompt": 1} == remarked(rows)
    assert {"no-prompt": 1} == remarked(rows, Trainer.KTO)
    assert {} == remarked(rows, Trainer.REWARD), "Reward scores whole texts"


@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.KTO])
def test_conversations_without_a_common_message_stop(trainer: Trainer) -> None:
    rows = [
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"chosen": [GOOD], "rejected": [BAD]},
    ]
    assert "row 2: chosen and rejected begin with different messages" in refusal(rows, trainer)
    assert {} == remarked(rows, Trainer.REWARD)


def test_an_empty_answer_stops_where_the_prompt_is_looked_for_in_it() -> None:
    rows = [{"chosen": "q a", "rejected": "q b"}, {"chosen": "q a", "rejected": ""}]
    assert "row 2: column 'rejected' is empty and there is no prompt column" in refusal(rows)
    assert {"empty-rejected": 1} == remarked(rows, Trainer.REWARD)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "q a", "rejected": "q b"},
        {"prompt": [USER], "chosen": [USER, GOOD], "rejected": [USER, BAD]},
    ],
)
def test_answers_that_repeat_the_prompt_are_counted(row: dict[str, Any]) -> None:
    assert {"repeated-prompt": 2} == remarked([row, row])


def test_margins_of_reward_are_numbers_in_every_row() -> None:
    row = {"prompt": "q", "chosen": "a", "rejected": "b"}
    margins = [{**row, "margin": 0.5}, {**row, "margin": None}]
    assert "'margin' is null in 1 of 2 rows, first in row 2" in refusal(margins, Trainer.REWARD)
    words = [{**row, "margin": "large"}] * 2
    assert "column 'margin' holds text" in refusal(words, Trainer.REWARD)
    assert {} == remarked(words), "DPO does not read it"


def test_system_texts_are_counted_where_the_conversation_has_none() -> None:
    row = {"messages": [USER], "chosen": GOOD, "rejected": BAD}
    own = {**row, "messages": [{"role": "system", "content": "own"}, USER], "system": "s"}
    rows = [{**row, "system": "s"}, {**row, "system": None}, {**row, "system": ""}, own]
    assert 1 == survey(rows).system


def test_answers_that_hold_their_prompt_both_get_the_system_text() -> None:
    row = {"chosen": [USER, GOOD], "rejected": [USER, BAD], "system": "s"}
    assert 2 == survey([row, row]).system
    read = with_beside(sides("chosen", "rejected"))
    found = read(row, 0, Reading(chat=True, render_calls=True, system=True))
    assert ["s", "q", "a"] == [message["content"] for message in found["chosen"]]
    assert ["s", "q", "b"] == [message["content"] for message in found["rejected"]]
