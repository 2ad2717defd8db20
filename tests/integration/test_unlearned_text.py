"""Every text of the rows is followed into TRL's token ids and labels; what is not learned is said.

Reports behind it: https://github.com/PrimeIntellect-ai/renderers/issues/134 (content parts),
https://github.com/unslothai/unsloth/pull/11053 (history),
https://github.com/hiyouga/LlamaFactory/pull/10471 (loss switches).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput, NotBuiltYet
from autotune.core.job import Trainer
from autotune.core.profile import DatasetProfile
from autotune.dataset.trl_rows import PREPARED_COLUMNS
from tests.integration.test_dataset_prepare import (
    BOT,
    USER,
    Prepare,
    cache,
    lengths_of,
    run,
    text_of,
    tokenizers,
)
from tests.support.tiny_tokenizer import TEMPLATE, write_tokenizer

pytestmark = pytest.mark.integration
__all__ = ["cache", "run", "tokenizers"]  # fixtures, found by name

#: Renders strings only, as many published templates do; strips the thoughts of earlier answers.
STRINGS = (
    "{%- for message in messages %}"
    "{%- set text = message.content if message.content is string else '' %}"
    "{%- if not loop.last and '</think>' in text %}"
    "{%- set text = text.split('</think>')[-1] %}{%- endif %}"
    "<|im_start|>{{ message.role }}\n{{ text | trim }}<|im_end|>\n"
    "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
#: Renders parts by themselves.
PARTS = (
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n"
    "{%- if message.content is string %}{{ message.content }}{%- else %}"
    "{%- for part in message.content %}{{ part.text }}{%- endfor %}{%- endif %}<|im_end|>\n"
    "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
#: Opens an answer with a thought that no conversation has: a prompt is no prefix.
THINKS = STRINGS.replace("assistant\n{%- endif", "assistant\n<think>\n{%- endif")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("templates")
    named = {"strings": STRINGS, "parts": PARTS, "thinks": THINKS}
    return {name: write_tokenizer(home / name, template=text) for name, text in named.items()}


def said(profile: DatasetProfile, code: str) -> list[str]:
    return [notice.message for notice in profile.notices if notice.code == code]


def as_parts(message: dict[str, Any], *texts: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text} for text in texts or (message["content"],)]
    return {**message, "content": parts}


@pytest.mark.parametrize("name", ["strings", "whole"])
def test_text_parts_that_a_template_does_not_render_become_plain_text(
    run: Prepare, templates: dict[str, Path], tokenizers: dict[str, Path], name: str
) -> None:
    folder = {**tokenizers, **templates}[name]  # the second prints the list as Python writes it
    expected = run([{"messages": [USER, BOT]}] * 3, tokenizer_dir=folder)
    rows = [{"messages": [as_parts(USER), as_parts(BOT)]}] * 3
    found = run(rows, tokenizer_dir=folder)
    assert expected.tokens == found.tokens
    assert "content given as lists of text parts to plain text" in str(found.conversion)
    assert found.converted_file is not None
    assert () == found.notices
    pair = run([{"messages": [as_parts(USER, "one", "two"), BOT]}], tokenizer_dir=folder)
    assert "one\ntwo" in text_of(pair, folder)


def test_text_parts_that_a_template_renders_stay_as_they_are(
    run: Prepare, templates: dict[str, Path]
) -> None:
    folder = templates["parts"]
    found = run([{"messages": [as_parts(USER), as_parts(BOT)]}], tokenizer_dir=folder)
    assert found.conversion is None
    assert USER["content"] in text_of(found, folder)


@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.REWARD, Trainer.KTO])
def test_text_parts_of_pairs_become_plain_text(
    run: Prepare, templates: dict[str, Path], trainer: Trainer
) -> None:
    sides = {"prompt": [USER], "chosen": [BOT], "rejected": [{**BOT, "content": "no"}]}
    flat = run([sides] * 4, trainer=trainer, tokenizer_dir=templates["strings"])
    rows = [{name: [as_parts(turn) for turn in turns] for name, turns in sides.items()}] * 4
    found = run(rows, trainer=trainer, tokenizer_dir=templates["strings"])
    assert flat.tokens == found.tokens
    assert () == found.notices


def test_pictures_among_parts_stop_as_rows_with_images(run: Prepare) -> None:
    picture = {"type": "image", "image": "a.png"}
    turn = {"role": "user", "content": [{"type": "text", "text": "what?"}, picture]}
    rows = [{"messages": [USER, BOT]}, {"messages": [turn, BOT]}]
    with pytest.raises(NotBuiltYet, match=r"row 2: turn 1 .* part of type 'image'"):
        run(rows)


def test_parts_that_are_no_text_stop_where_nothing_renders_them(run: Prepare) -> None:
    turn = {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}
    with pytest.raises(BadInput, match=r"row 1: .*'tool_use'.* renders no content given as parts"):
        run([{"messages": [USER, turn]}])


def test_a_message_field_the_template_leaves_out_is_counted_with_its_first_row(
    run: Prepare, templates: dict[str, Path]
) -> None:
    bare = {"messages": [USER, BOT]}
    thought = {"messages": [USER, {**BOT, "reasoning_content": "let me think about it"}]}
    (message,) = said(run([bare, bare, thought, thought]), "unlearned-text")
    assert message.startswith("2 of 4 rows: messages[].reasoning_content (assistant) is not in the")
    assert "first row 3: the chat template leaves it out" in message


def test_a_message_field_is_counted_in_pairs_for_every_trainer(run: Prepare) -> None:
    thought = {**BOT, "thinking": "let me think about it"}
    rows = [
        {"prompt": [USER], "chosen": [thought], "rejected": [{**BOT, "content": "no way"}]},
        {"prompt": [USER], "chosen": [BOT], "rejected": [{**BOT, "content": "no way"}]},
    ] * 3
    for trainer in (Trainer.DPO, Trainer.REWARD, Trainer.KTO):
        (message,) = said(run(rows, trainer=trainer), "unlearned-text")
        assert message.startswith("3 of 6 rows: chosen[].thinking (assistant) is not in"), trainer


def test_a_text_of_which_a_template_takes_a_part_is_not_whole(
    run: Prepare, templates: dict[str, Path]
) -> None:
    thinking = {**BOT, "content": "<think>\nfirst I add them\n</think>\nThe sum is eleven."}
    rows = [{"messages": [USER, BOT]}, {"messages": [USER, thinking, USER, BOT]}]
    (message,) = said(run(rows, tokenizer_dir=templates["strings"]), "unlearned-text")
    assert "1 of 2 rows: messages[].content (assistant) is not whole in the training" in message
    assert "first row 2" in message


def test_answers_that_are_gone_in_most_rows_stop(run: Prepare, tokenizers: dict[str, Path]) -> None:
    mute = TEMPLATE.replace("{{ message.content }}", "{{ message.text }}")
    folder = write_tokenizer(tokenizers["whole"].with_name("mute"), template=mute)
    with pytest.raises(BadInput) as caught:
        run([{"messages": [USER, BOT]}] * 2, tokenizer_dir=folder)
    assert "2 of 2 rows: messages[].content (assistant) is not in the training" in str(caught.value)
    assert "chat_template_path" in str(caught.value)


def test_tools_the_template_leaves_out_are_said(run: Prepare) -> None:
    schema = {"name": "weather", "description": "Tell the weather of a city"}
    rows = [{"messages": [USER, BOT], "tools": [{"type": "function", "function": schema}]}]
    assert not said(run(rows), "unlearned-text")
    (message,) = said(run(rows, tokenizer="deaf"), "unlearned-text")
    assert "1 of 1 rows: column 'tools' is not in the training text" in message


def test_columns_beside_the_layout_are_named_those_that_repeat_it_are_not(run: Prepare) -> None:
    row = {"instruction": "Add two", "input": "", "output": "four", "question": "Add two"}
    rows = [{**row, "context": ""}, {**row, "context": "a long background"}]
    (message,) = said(run(rows), "unread-columns")
    assert "column 'context' (1 of 2 rows, first row 2, 17 characters) is not in" in message
    assert "'question'" not in message


@pytest.mark.parametrize("beside", [{"documents": [{"text": "deep inside"}]}, {"others": ["b c"]}])
def test_texts_deep_inside_other_columns_are_found(run: Prepare, beside: dict[str, Any]) -> None:
    (message,) = said(run([{"messages": [USER, BOT], **beside}]), "unread-columns")
    assert repr(next(iter(beside))) in message


HISTORY = {
    "instruction": "And then?",
    "input": "",
    "output": "We land.",
    "history": [["Where to?", "To the moon."], ["How far?", "Quite far."]],
}


def test_history_becomes_earlier_turns_and_its_answers_are_context(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    found = run([HISTORY, {**HISTORY, "history": []}])
    text = text_of(found, tokenizers["whole"])
    order = ("Where to?", "To the moon.", "How far?", "Quite far.", "And then?", "We land.")
    assert sorted(order, key=text.index) == list(order)
    assert "pairs of column 'history' to earlier turns" in str(found.conversion)
    (message,) = said(found, "unlearned-answers")
    assert "1 of 2 rows: column 'history' (assistant) is read but never trained on" in message
    trained = run([HISTORY], options={"completion_only_loss": False})
    assert not said(trained, "unlearned-answers")


def test_history_is_read_without_a_template_and_for_ratings_and_pairs(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    plain = run([HISTORY], tokenizer="no_template")
    assert "Where to?\n\nTo the moon." in text_of(plain, tokenizers["no_template"])
    rated = run([{**HISTORY, "label": True}] * 2, trainer=Trainer.KTO)
    assert "history" in str(rated.conversion)
    pair = {**HISTORY, "chosen": "We land.", "rejected": "We fall."}
    del pair["output"]
    assert "history" in str(run([pair] * 2, trainer=Trainer.DPO).conversion)


def test_history_that_is_no_pairs_stops_with_its_row(run: Prepare) -> None:
    with pytest.raises(BadInput, match="row 2: column 'history' holds a list of 1 values"):
        run([HISTORY, {**HISTORY, "history": [["alone"]]}])


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [("loss", False, True), ("weight", 0, 1), ("trainable", False, True), ("mask", True, False)],
)
def test_switches_per_message_are_counted_because_trl_reads_none(
    run: Prepare, name: str, off: Any, on: Any
) -> None:
    chat = [USER, {**BOT, name: off}, USER, {**BOT, name: on}]
    (message,) = said(run([{"messages": chat}] * 2), "unread-switch")
    assert f"2 of 2 rows: field '{name}' of 2 messages (2 answers)" in message
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", name: off}]
    (message,) = said(run([{"conversations": turns}]), "unread-switch")
    assert f"1 of 1 rows: field '{name}' of 1 messages (1 answers)" in message
    whole = {"messages": [USER, {**BOT, name: on}]}
    assert not said(run([whole]), "unread-switch")


@pytest.mark.parametrize("empty", [[], None])
def test_an_empty_column_of_pictures_is_left_out(run: Prepare, empty: Any) -> None:
    found = run([{"messages": [USER, BOT], "images": empty}] * 2)
    assert "left out columns images" in str(found.conversion)
    assert run([{"messages": [USER, BOT]}] * 2).tokens == found.tokens


def test_pictures_in_some_rows_stop_with_the_first(run: Prepare) -> None:
    rows = [{"messages": [USER, BOT], "images": images} for images in ([], ["a.png"])]
    with pytest.raises(NotBuiltYet, match=r"'images' has some in 1 of 2 rows, first in row 2"):
        run(rows)


def test_a_text_column_beside_completions_does_not_take_their_end(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    found = run([{"prompt": "two and two ", "completion": "four", "text": "something else"}])
    assert text_of(found, tokenizers["whole"]).endswith("four</s>")
    assert "left out columns text" in str(found.conversion)


@pytest.mark.parametrize("trainer", [Trainer.SFT, Trainer.DPO, Trainer.KTO])
@pytest.mark.parametrize("workers", [None, 2])
def test_what_trl_warns_of_is_said_once_and_counted(
    run: Prepare, templates: dict[str, Path], trainer: Trainer, workers: int | None
) -> None:
    row: dict[str, Any] = {"prompt": [USER]}
    sides = ("completion",) if trainer is Trainer.SFT else ("chosen", "rejected")
    row |= {name: [{**BOT, "content": name}] for name in sides}
    options = {"dataset_num_proc": workers}
    found = run([row] * 6, trainer=trainer, tokenizer_dir=templates["thinks"], options=options)
    times = 12 if trainer is Trainer.KTO else 6
    (message,) = said(found, "library-warning")
    assert (
        f"trl {trainer.value} warned {times} times while it prepared the rows: The tok" in message
    )
    assert times == next(n.count for n in found.notices if n.code == "library-warning")


@pytest.mark.parametrize("trainer", list(PREPARED_COLUMNS))
def test_rows_without_a_fault_are_not_remarked(run: Prepare, trainer: Trainer) -> None:
    pair = {"prompt": [USER], "chosen": [BOT], "rejected": [{**BOT, "content": "no"}]}
    chat = {"messages": [{"role": "system", "content": "Be brief."}, USER, BOT]}
    assert () == run([chat if trainer is Trainer.SFT else pair] * 4, trainer=trainer).notices


def test_a_call_outside_the_generation_markers_is_never_trained(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    marked = (
        "{%- for message in messages %}<|im_start|>{{ message.role }}\n"
        "{%- for call in message.tool_calls or [] %}{{ call.function | tojson }}{%- endfor %}"
        "{%- if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>"
        "{% endgeneration %}{%- else %}{{ message.content }}<|im_end|>{%- endif %}\n{%- endfor %}"
    )
    folder = write_tokenizer(tokenizers["whole"].with_name("marked"), template=marked)
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
    caller = {"role": "assistant", "content": "", "tool_calls": [call]}
    rows = [{"messages": [USER, caller, {"role": "tool", "content": "sunny"}, BOT]}] * 2
    found = run(rows, tokenizer_dir=folder, options={"assistant_only_loss": True})
    assert lengths_of(found).labels.sum() < lengths_of(found).tokens.sum()
    (message,) = said(found, "unlearned-answers")
    assert "2 of 2 rows: messages[].tool_calls (assistant) is read but never trained" in message


def test_a_tokenizer_that_changes_the_text_is_said(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    folder = write_tokenizer(tokenizers["whole"].with_name("lower"))
    file = folder / "tokenizer.json"
    settings = json.loads(file.read_text())
    settings["normalizer"] = {"type": "Lowercase"}
    file.write_text(json.dumps(settings))
    rows = [{"text": "all small"}, {"text": "Some LARGE letters"}]
    (message,) = said(run(rows, tokenizer_dir=folder), "changed-text")
    assert "1 of 2 rows: the tokenizer does not keep column 'text' as written" in message
    assert "first row 2" in message
