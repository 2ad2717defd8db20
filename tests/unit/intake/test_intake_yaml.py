"""What is odd about a user's YAML is said with its place; what TRL reads is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.errors import BadInput
from autotune.emit.read_config import read_user_config
from autotune.intake.job import build_job
from autotune.intake.request import Request

ODD: dict[str, tuple[str, str]] = {
    "a tab after a colon": ("seed:\t\t3\nbf16:\t[", "not YAML"),
    "a tab as indentation": ("env:\n\tA: b\n", r"line 2, column 1.*spaces where the tab is"),
    "an open bracket": ("learning_rate: [1\n", r"line 2, column 1"),
    "two documents": ("seed: 3\n---\nseed: 4\n", "line 2"),
    "a Python object": ("seed: !!python/object:os.system 1\n", "line 1, column 7"),
    "a list": ("- seed\n", "holds no mapping"),
    "nothing": ("# nothing yet\n", "holds no mapping"),
    "a split that is a number": ("dataset_train_split: 5\n", "dataset_train_split.*expected text"),
    "a data set that is a list": ("dataset_name: [a]\n", "dataset_name.*expected text"),
    "blocks that are none": ("datasets: rows\n", "list of blocks"),
    "an env that is a list": ("env: [a]\n", "not a mapping"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_cannot_be_read_is_one_sentence_with_its_place(case: str, tmp_path: Path) -> None:
    text, words = ODD[case]
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=words) as caught:
        read_user_config(file)
    assert "unicode string" not in str(caught.value)


def test_an_encoding_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes("# caf\u00e9\nseed: 3\n".encode("latin-1"))
    with pytest.raises(BadInput, match=r"cannot be read.*utf-8"):
        read_user_config(file)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_byte_order_marks_and_line_ends_of_windows_are_read(
    mark: bytes, end: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(mark + end.join([b"seed: 3", b"max_length: 64", b""]))
    assert {"seed": 3, "max_length": 64} == read_user_config(file).options


def test_a_key_that_is_there_twice_is_said_and_the_last_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("max_length: 64\nseed: 3\nmax_length: 32\n", encoding="utf-8")
    job, origin = build_job(Request(config=str(file)))
    assert 32 == job.options["max_length"]
    assert any("max_length is written more than once" in notice for notice in origin.notices)


def test_a_seed_below_zero_is_bad_input() -> None:
    with pytest.raises(BadInput, match="--seed is -5"):
        build_job(Request(seed=-5))
