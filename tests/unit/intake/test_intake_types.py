"""Values that come from Python instead of a command line: refused by name before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput
from autotune.intake.objects import as_paths
from autotune.intake.request import Request, check_types


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"memory": 22}, "memory is 22, expected text"),
        ({"headroom": 0.05}, "headroom is 0.05, expected text"),
        ({"trainer": None}, "trainer is None, expected text"),
        ({"trials": "5"}, "trials is '5', expected a whole number"),
        ({"effective_batch": 2.0}, r"effective_batch is 2\.0, expected a whole number"),
        ({"allow": "peft"}, "allow is 'peft', expected a list of words"),
        ({"set_options": "bf16=false"}, "set_options is 'bf16=false', expected a dictionary"),
        ({"force": "yes"}, "force is 'yes', expected True or False"),
    ],
)
def test_a_value_of_another_type_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_types(Request(**given))


def test_the_types_of_the_command_line_and_their_like_are_taken() -> None:
    given: dict[str, Any] = {"space": Path("mine.yaml"), "allow": ["peft"], "memory": "2GiB"}
    check_types(Request())
    check_types(Request(**given))


@pytest.mark.parametrize(("rows", "words"), [([], "is empty"), (["a", "b"], "holds a str")])
def test_a_list_without_rows_is_refused(rows: list[Any], words: str) -> None:
    with pytest.raises(BadInput, match=words), as_paths(None, rows):
        pass
