"""`autotune report` and `autotune emit` on a stored result."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.emit import EMITTERS
from autotune.report import REPORTERS
from tests.support.cli import autotune
from tests.support.results import gpu_result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reports")
    (made / "run").mkdir()
    text = gpu_result().model_dump_json(indent=1)
    (made / "run" / "result.json").write_text(text, encoding="utf-8")
    return made


@pytest.mark.parametrize("name", list(REPORTERS))
def test_every_format_is_what_its_reporter_renders(name: str, folder: Path) -> None:
    done = autotune("report", "run", "--format", name, cwd=folder)
    assert (0, "") == (done.returncode, done.stderr)
    assert REPORTERS[name].render(gpu_result()) == done.stdout


@pytest.mark.parametrize("name", list(EMITTERS))
def test_every_emitted_format_is_what_its_emitter_renders(name: str, folder: Path) -> None:
    done = autotune("emit", "run/result.json", "--format", name, cwd=folder)
    assert (0, "") == (done.returncode, done.stderr)
    assert EMITTERS[name].render(gpu_result()) == done.stdout


def test_a_report_goes_to_a_file_whose_folder_is_made(folder: Path) -> None:
    done = autotune("report", "run", "--format", "html", "--out", "new/page.html", cwd=folder)
    assert (0, "written to new/page.html\n") == (done.returncode, done.stdout)
    assert REPORTERS["html"].render(gpu_result()) == (folder / "new/page.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "run", "--format", "htm"], "did you mean 'html'?"),
        (["emit", "run", "--format", "yaml"], "did you mean 'trl-yaml'?"),
        (["report", "nowhere"], "no result at nowhere"),
        (["report", "run", "--out", "run/result.json"], "looks like a result"),
        (["compare", "run", "run", "--fail-on", "memory:+3%"], "did you mean 'peak_memory'?"),
        (["compare", "run", "run", "--speed", "fast"], "It takes absolute, ratio."),
        (["compare", "run", "run", "--out", "/proc/x/y.md"], "cannot be made"),
        (["compare", "run", "run", "--out", "run/result.json"], "looks like a result"),
        (["compare", "run", "run", "--out", "thesis.md"], "thesis.md exists"),
        (["report", "run", "--out", "thesis.md"], "thesis.md exists"),
        (["compare", "run"], "Missing argument"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments: list[str], said: str, folder: Path) -> None:
    before = (folder / "run/result.json").read_bytes()
    (folder / "thesis.md").write_text("precious", encoding="utf-8")
    done = autotune(*arguments, cwd=folder)
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert said in done.stderr
    assert before == (folder / "run/result.json").read_bytes()
    assert "precious" == (folder / "thesis.md").read_text("utf-8")


def test_a_file_is_replaced_when_that_is_asked_for(folder: Path) -> None:
    (folder / "old.csv").write_text("old", encoding="utf-8")
    done = autotune("report", "run", "--format", "csv", "--out", "old.csv", "--force", cwd=folder)
    assert 0 == done.returncode, done.stderr
    assert REPORTERS["csv"].render(gpu_result()) == (folder / "old.csv").read_text("utf-8")
