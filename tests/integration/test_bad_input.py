"""Bad input: one clear line on stderr, exit code 2, no traceback, nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import autotune
from tests.support.models import tiny_model
from tests.support.warm import Said, Shared, command_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good model and rows, and several bad ones."""
    folder = tmp_path_factory.mktemp("bad")
    tiny_model(folder / "model")
    rows = [{"text": f"row number {i}"} for i in range(20)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "empty.jsonl").write_text("", encoding="utf-8")
    (folder / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n', encoding="utf-8")
    other = [{"question": "why", "reply": "because"} for _ in range(4)]
    (folder / "columns.json").write_text(json.dumps(other), encoding="utf-8")
    (folder / "mine.yaml").write_text("learning_rate: [", encoding="utf-8")
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.txt").write_text("precious", encoding="utf-8")
    return folder


GOOD = ("--model", "model", "--dataset", "rows.jsonl")

CASES = {
    "a missing model": (("--model", "modle", "--dataset", "rows.jsonl"), "model"),
    "a model's weights alone": (
        ("--model", "model/tokenizer.json", "--dataset", "rows.jsonl"),
        "expected a folder",
    ),
    "a missing data set": (("--model", "model", "--dataset", "rows.json"), "rows.jsonl"),
    "a model without rows": (("--model", "model"), "--dataset is missing"),
    "rows without a model": (("--dataset", "rows.jsonl"), "--model is missing"),
    "an empty file": (("--model", "model", "--dataset", "empty.jsonl"), "empty"),
    "a broken line": (("--model", "model", "--dataset", "broken.jsonl"), "line 2"),
    "wrong columns": (("--model", "model", "--dataset", "columns.json"), "question"),
    "an unknown trainer": ((*GOOD, "--trainer", "sfft"), "'sft'"),
    "an unknown option": ((*GOOD, "--set", "max_lenght=512"), "'max_length'"),
    "a value TRL refuses": ((*GOOD, "--set", "learning_rate=fast"), "learning_rate"),
    "a --set without a value": ((*GOOD, "--set", "max_length"), "key=value"),
    "a size that does not parse": ((*GOOD, "--memory", "lots"), "22GiB"),
    "a size without a unit": ((*GOOD, "--memory", "22"), "22GiB"),
    "a percentage that does not parse": ((*GOOD, "--headroom", "five"), "5%"),
    "a percentage above the whole": ((*GOOD, "--min-retention", "101%"), "100 %"),
    "a duration that does not parse": ((*GOOD, "--timeout", "soon"), "10m"),
    "a folder with something else in it": ((*GOOD, "--out", "taken"), "taken"),
    "force on something else": ((*GOOD, "--out", "taken", "--force"), "not a folder autotune"),
    "nothing to resume": ((*GOOD, "--resume", "--out", "nowhere"), "no run to resume"),
    "a broken YAML": (("--config", "mine.yaml"), "mine.yaml"),
    "an unknown space": ((*GOOD, "--space", "quik"), "'quick'"),
    "an unknown objective": ((*GOOD, "--objective", "speed"), "throughput"),
    "an unknown device": ((*GOOD, "--device", "gpu"), "cuda"),
    "an unknown command-line option": ((*GOOD, "--memmory", "2GiB"), "--memmory"),
    "an unknown change to allow": ((*GOOD, "--allow", "mixin"), "'mixing'"),
    "a hub name while offline (BC52)": (
        ("--model", "nobody/nothing", "--dataset", "rows.jsonl"),
        "nobody/nothing",
    ),
    "a folder that cannot be made (BC52)": ((*GOOD, "--out", "/proc/nowhere/run"), "/proc/nowhere"),
    "more memory than there is": ((*GOOD, "--memory", "900TiB"), "921,600"),
}


@pytest.fixture
def command(
    shared: Shared, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., Said]:
    command = command_of(shared, monkeypatch, capsys, here)
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    return command


#: Tried in a process of its own: what lies near a path that leads nowhere is seen from the folder
#: the measuring process was started in.
APART = "a missing data set"


@pytest.mark.parametrize("case", [case for case in CASES if case != APART])
def test_bad_input_is_one_line_and_exit_code_2(
    case: str, here: Path, command: Callable[..., Said]
) -> None:
    arguments, expected = CASES[case]
    before = sorted(p.relative_to(here) for p in here.rglob("*"))
    said = command("run", *arguments)
    assert said.code == 2, said.err
    assert len(said.errors) == 1, said.err
    assert expected in said.errors[0]
    assert "Traceback" not in said.err
    assert said.out == ""
    after = sorted(p.relative_to(here) for p in here.rglob("*"))
    assert after == before


def test_a_process_of_its_own_ends_with_that_code(here: Path) -> None:
    arguments, expected = CASES[APART]
    done = autotune("run", *arguments, cwd=here)
    assert (2, True) == (done.returncode, expected in done.stderr), done.stderr
    assert "" == done.stdout


def test_a_device_that_is_not_there_is_exit_code_4(command: Callable[..., Said]) -> None:
    said = command("run", *GOOD, "--device", "cuda:7")
    assert 4 == said.code
    assert "cuda:7" in said.err and "Traceback" not in said.err


def test_nothing_fits_is_exit_code_3_and_writes_no_config(here: Path) -> None:
    done = autotune(
        "run", *GOOD, "--memory", "3MiB", "--space", "quick", "--out", "tight", cwd=here
    )
    assert done.returncode == 3, done.stderr
    assert "nothing fits" in done.stderr
    assert not (here / "tight" / "best.yaml").exists()
    assert (here / "tight" / "result.json").exists()
