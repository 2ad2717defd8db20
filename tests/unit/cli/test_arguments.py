"""Names that are no UTF-8 are bad input, whatever option has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.cli.arguments import check_arguments
from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource
from autotune.dataset.load import local_files

BAD = os.fsdecode(b"rows\xff.jsonl")


@pytest.mark.parametrize("option", ["--dataset", "--config", "--out", "--model", "--space"])
@pytest.mark.parametrize("joined", [True, False])
def test_an_option_with_such_a_name_is_named(option: str, joined: bool) -> None:
    given = [f"{option}={BAD}"] if joined else [option, BAD]
    with pytest.raises(BadInput) as caught:
        check_arguments(["run", *given], {})
    assert f"{option} is 'rows\\xff.jsonl', which is no UTF-8." == caught.value.message


def test_an_argument_and_the_folder_of_caches_are_checked_too() -> None:
    with pytest.raises(BadInput, match="an argument is"):
        check_arguments(["emit", BAD], {})
    with pytest.raises(BadInput, match="AUTOTUNE_CACHE is"):
        check_arguments(["run"], {"AUTOTUNE_CACHE": BAD})
    check_arguments(["run", "--dataset", "Größe/行.jsonl"], {"AUTOTUNE_CACHE": "é"})


def test_a_run_in_a_folder_of_such_a_name_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / BAD
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "spaces", "list"],
        cwd=folder,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert 2 == done.returncode
    assert 1 == len(done.stderr.splitlines())
    assert b"the current folder is" in done.stderr


def test_a_file_of_such_a_name_in_a_folder_of_rows_is_named(tmp_path: Path) -> None:
    (tmp_path / BAD).write_text('{"text": "a"}\n')
    with pytest.raises(BadInput, match=r"a file called 'rows\\xff.jsonl', which is no UTF-8"):
        local_files(DatasetSource(path=str(tmp_path)))
