"""Rows that cannot be trained on stop a run at once: one line, exit code 2, nothing tried.

Cases BC03, BC04, BC06, BC15, BC27, BC28 and BC32 through the command line; every rule behind them
is tried in more forms in test_dataset_cases.py.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from autotune.core.length_report import LengthReport
from tests.support.cli import DATA
from tests.support.tiny_tokenizer import tiny_config, write_tokenizer
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration

USER = {"role": "user", "content": "hi there"}
BOT = {"role": "assistant", "content": "hello"}
CHAT = [{"messages": [USER, BOT]}] * 4
Command = Callable[..., Said]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one model per kind of tokenizer."""
    folder = tmp_path_factory.mktemp("stops")
    kinds: dict[str, dict[str, Any]] = {
        "whole": {},
        "no_template": {"template": None},
        "no_pad": {"pad": False},
        "neither": {"pad": False, "eos": False},
    }
    for name, changes in kinds.items():
        tiny_config().save_pretrained(write_tokenizer(folder / name, **changes))
    return folder


@pytest.fixture
def command(shared: Shared, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Command:
    return command_of(shared, monkeypatch, capsys, home)


def written(home: Path, rows: Any, name: str = "rows.jsonl") -> str:
    if not isinstance(rows, str | bytes):
        rows = "".join(json.dumps(row) + "\n" for row in rows)
    (home / name).write_bytes(rows if isinstance(rows, bytes) else rows.encode())
    return name


def stopped(command: Command, home: Path, *arguments: str) -> str:
    before = {p for p in home.iterdir() if p.name != ".cache"}
    said = command("run", *arguments, "--space", "quick", "--out", "run")
    assert 2 == said.code, said.err
    assert "" == said.out
    assert 1 == len(said.errors), said.err
    assert "Traceback" not in said.err
    assert before == {p for p in home.iterdir() if p.name != ".cache"}
    return said.errors[0]


STOPS: dict[str, tuple[Any, str, str]] = {
    "BC03 instruction and output alone": (
        [{"instruction": "i", "output": "o"}] * 4,
        "whole",
        "Accepted for sft",
    ),
    "BC03 a capitalised name": ([{"Text": "t"}] * 4, "whole", "rename 'Text' to 'text'"),
    "BC03 a prompt alone": ([{"prompt": "q"}] * 4, "whole", "add a column 'completion'"),
    "BC04 no chat template": (CHAT, "no_template", "chat_template_path"),
    "BC15 neither pad nor end token": (CHAT, "neither", "neither pad nor eos token; set one"),
    "BC27 a null text": ([{"text": "a"}, {"text": None}], "whole", "first in row 2"),
    "BC27 an empty conversation": ([CHAT[0], {"messages": []}], "whole", "first in row 2"),
    "BC27 a broken line": ('{"text": "a"}\n{"text":\n', "whole", "line 2"),
    "BC27 an empty file": ("", "whole", "is empty"),
    "BC28 an unknown key": (
        [{"messages": [{"speaker": "user", "content": "x"}]}] * 4,
        "whole",
        "unknown key 'speaker'",
    ),
    "BC28 a late change of kind": (
        [{"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}] * 9
        + [{"conversations": "a string"}],
        "whole",
        "first in row 10",
    ),
    "BC32 labels one shorter": (
        [{"input_ids": [1, 2, 3], "labels": [1, 2]}],
        "whole",
        "row 1 has 3 input_ids but 2 labels",
    ),
    "BC32 all labels masked": (
        [{"input_ids": [1, 2, 3], "labels": [-100] * 3}] * 2,
        "whole",
        "row 1 has 3 tokens and 3 labels of -100",
    ),
    "text in another encoding": (
        '{"text": "caf\u00e9"}\n'.encode("latin-1"),
        "whole",
        "is not UTF-8 text",
    ),
    "rows of an end token alone": ([{"text": ""}] * 4, "whole", "one token long"),
    "BC32 an id beyond the embedding": ([{"input_ids": [1, 400]}], "whole", "token id 400"),
}


@pytest.mark.parametrize("case", STOPS)
def test_rows_that_cannot_be_trained_on_stop_before_anything_is_tried(
    case: str, command: Command, home: Path
) -> None:
    rows, model, expected = STOPS[case]
    said = stopped(command, home, "--model", model, "--dataset", written(home, rows))
    assert expected in said


def test_bc03_an_unknown_split_of_several_names_them(command: Command, home: Path) -> None:
    rows = datasets.Dataset.from_list(CHAT)
    datasets.DatasetDict({"sft": rows, "dev": rows}).save_to_disk(str(home / "saved"))
    said = stopped(command, home, "--model", "whole", "--dataset", "saved")
    assert "has no split 'train'; it has 'sft', 'dev'" in said


@pytest.mark.parametrize("trainer", ["dpo", "reward"])
def test_bc03_sft_rows_are_explained_to_preference_trainers(
    command: Command, home: Path, trainer: str
) -> None:
    rows = written(home, [{"text": "t"}] * 4)
    said = command("profile", "--model", "whole", "--dataset", rows, "--trainer", trainer)
    assert 2 == said.code
    assert "" == said.out
    assert f"Accepted for {trainer}: " in said.errors[0]


def test_bc32_skipping_preparation_of_text_is_explained(command: Command, home: Path) -> None:
    rows = written(home, [{"text": "a"}])
    said = stopped(
        command,
        home,
        *("--model", "whole", "--dataset", rows),
        *("--set", "dataset_kwargs={skip_prepare_dataset: true}"),
    )
    assert "skip_prepare_dataset" in said and "not tokenised" in said


def profiled(command: Command, home: Path, rows: Any, *arguments: str) -> LengthReport:
    said = command(*("profile", "--dataset", written(home, rows), "--format", "json", *arguments))
    assert 0 == said.code, said.err
    return LengthReport.model_validate_json(said.out)


def test_bc06_what_trls_default_would_cut_is_the_first_thing_said(
    command: Command, home: Path
) -> None:
    rows = [{"input_ids": [5] * 1500}] * 10
    report = profiled(command, home, rows, "--model", "whole")
    assert report.advice.sentences[0].startswith(
        "max_length is not set, and TRL's default of 1024 cuts 10 of 10 rows and drops 31.7 %"
    )
    assert 1536 == report.advice.max_length
    shown = command("profile", "--model", "whole", "--dataset", "rows.jsonl")
    first = shown.out.splitlines()
    assert first[1].startswith("max_length is not set, and TRL's default of 1024 cuts 10 of 10")
    planned = command(
        *("run", "--model", "whole", "--dataset", "rows.jsonl", "--dry-run"),
        *("--set", "bf16=false", "--memory", "1GiB"),
    )
    assert 0 == planned.code, planned.err
    notes = [line for line in planned.out.splitlines() if line.startswith("note")]
    assert any("1024 cuts 10 of 10 rows and drops 31.7 % of all tokens" in note for note in notes)


def test_bc15_the_token_that_pads_is_named(command: Command, home: Path) -> None:
    report = profiled(command, home, CHAT, "--model", "no_pad")
    assert "the end-of-sequence token" in report.profile.pad_token


def test_bc27_empty_turns_and_bc32_padded_rows_are_counted_warnings(
    command: Command, home: Path
) -> None:
    silent = {"messages": [USER, {"role": "assistant", "content": None}]}
    report = profiled(command, home, [silent, *CHAT], "--model", "whole")
    assert any("1 assistant turns are empty, first in row 1" in n for n in report.notices)
    assert (5, 5) == (report.profile.rows_given, report.profile.rows_used)
    padded = [{"input_ids": [5, 6, 7] + [0] * 29, "attention_mask": [1] * 3 + [0] * 29}] * 2
    report = profiled(command, home, padded, "--model", "whole")
    assert any("2 of 2 rows are padded already" in n for n in report.notices)


def test_bc28_conversations_are_converted_and_that_is_said(command: Command, home: Path) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    report = profiled(command, home, [{"conversations": turns}] * 4, "--model", "whole")
    assert any(n.startswith("Rows: conversations to role/content messages") for n in report.notices)


def test_a_config_that_evaluates_needs_rows_to_evaluate_on(command: Command, home: Path) -> None:
    rows = written(home, CHAT)
    arguments = ("--model", "whole", "--dataset", rows, "--set", "eval_strategy=steps")
    said = stopped(command, home, *arguments, "--set", "eval_steps=5")
    assert "eval_strategy is 'steps'" in said
    assert "no split 'test'; it has 'train'" in said
    said = stopped(command, home, *arguments, "--dataset-test-split", "dev")
    assert "no split 'dev'" in said


def test_a_stream_that_would_have_to_be_converted_stops_a_run_and_is_profiled(
    command: Command, home: Path
) -> None:
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    rows = [{"conversations": turns}] * 40
    arguments = ("--model", "whole", "--set", "dataset_streaming=true")
    report = profiled(command, home, rows, *arguments, "--sample", "30")
    assert 30 == report.profile.rows_given
    assert any("a stream: its first 30" in n for n in report.notices)
    said = stopped(command, home, *arguments, "--dataset", "rows.jsonl")
    assert "max_steps is not set" in said
    said = stopped(command, home, *arguments, "--dataset", "rows.jsonl", "--set", "max_steps=5")
    assert "a stream and would have to be converted" in said


def test_files_separated_by_tabs_and_compressed_ones_are_profiled(
    command: Command, home: Path
) -> None:
    (home / "rows.tsv").write_text("text\tn\none, two\t1\nthree\t2\n", encoding="utf-8")
    (home / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one, two"}\n' * 2))
    for name in ("rows.tsv", "rows.jsonl.gz"):
        said = command("profile", "--model", "whole", "--dataset", name, "--format", "json")
        assert 0 == said.code, said.err
        assert 2 == LengthReport.model_validate_json(said.out).profile.rows_used


@pytest.mark.parametrize(
    ("name", "trainer", "rows"),
    [
        ("alpaca_en_demo.json", "sft", 999),
        ("glaive_toolcall_en_demo.json", "sft", 300),
        ("c4_demo.jsonl", "sft", 300),
        ("kto_en_demo.json", "kto", 300),
        ("dpo_en_demo.json", "dpo", 300),
        ("dpo_en_demo.json", "reward", 300),
    ],
)
def test_every_shared_file_is_profiled_for_its_trainer(
    command: Command, name: str, trainer: str, rows: int
) -> None:
    if not (DATA / name).is_file():
        pytest.skip(f"{DATA / name} is not there: the trial data is not part of the project")
    common = ("profile", "--model", "demo", "--dataset", str(DATA / name), "--trainer", trainer)
    said = command(*common, "--format", "json")
    assert 0 == said.code, said.err
    report = LengthReport.model_validate_json(said.out)
    assert rows == report.profile.rows_used
    assert report.advice.max_length in [row.max_length for row in report.lengths]
    assert "embedded demo model's tokenizer" in report.notices[0]
    assert all(0 <= row.label_tokens_kept_ratio <= 1 for row in report.lengths)


def test_the_page_and_the_table_are_written_where_asked(command: Command, home: Path) -> None:
    written(home, [{"text": "words " * n} for n in range(1, 60)])
    common = ("profile", "--model", "whole", "--dataset", "rows.jsonl", "--out")
    page = command(*common, "page.html", "--format", "html")
    assert (0, "written to page.html\n") == (page.code, page.out)
    assert "<h1" in (home / "page.html").read_text(encoding="utf-8")
    table = command(*common, "table.txt")
    assert 0 == table.code
    assert "max_length" in (home / "table.txt").read_text(encoding="utf-8")
    again = command(*common, "table.txt")
    assert (2, True) == (again.code, "table.txt exists" in again.err)
    assert 0 == command(*common, "table.txt", "--force").code
    assert 2 == command(*common, "x", "--format", "htm").code
    assert 4 == command("profile", "--trainer", "grpo").code
