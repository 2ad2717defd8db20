from __future__ import annotations

from enum import Enum
from io import StringIO
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from autotune.emit.values import one_line, same_value, typed, yaml_block, yaml_text

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -3,
    2e-5,
    1e-08,
    1.5,
    3e20,
    "no",
    "off",
    "y",
    "2e-5",
    "1_000",
    "0x1f",
    "12:30:45",
    "2026-01-01",
    "~",
    "null",
    "",
    " padded ",
    "a: b",
    "a #b",
    "#x",
    "- x",
    "<<",
    "=",
    "@home",
    "%x",
    "*x",
    "&x",
    "!x",
    "[1]",
    "{a}",
    "it's",
    'say "hi"',
    "back\\slash",
    "tab\tand\nnewline",
    "bell\x07 del\x7f nel\x85 sep\u2028",
    "héllo 日本 🤖",
    "/abs/path with space.json",
    "acme/base-7b",
    [1, "no", 2e-5],
    {"selective": True, "no": "off", "nested": {"lr": 1e-6}},
    [],
    {},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_written_value_means_the_same_to_yaml_1_1_and_1_2(value: Any) -> None:
    text = f"key: {yaml_text(value)}\n"
    assert repr(value) == repr(yaml.safe_load(text)["key"])
    assert value == YAML(typ="safe", pure=True).load(StringIO(text))["key"]


def test_a_list_of_mappings_is_laid_out_as_a_block() -> None:
    value = [{"path": "json", "data_files": "/a b.json"}, {"path": "csv"}]
    lines = yaml_block("datasets", value)
    assert [
        "datasets:",
        "  - path: json",
        '    data_files: "/a b.json"',
        "  - path: csv",
    ] == lines
    assert {"datasets": value} == yaml.safe_load("\n".join(lines))


class _Optimizer(Enum):
    ADAMW = "adamw_torch"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2e-5", 2e-5),
        ("true", True),
        (8, 8.0),
        ("wandb", ["wandb"]),
        ("none", []),
        ('{"selective": true}', {"selective": True}),
        ("adamw_torch", _Optimizer.ADAMW),
    ],
)
def test_two_spellings_that_trl_reads_alike_are_no_change(written: Any, meant: Any) -> None:
    assert same_value(written, meant)


@pytest.mark.parametrize(
    ("written", "meant"), [(1, True), (0, False), ("a", "b"), (None, "none"), ("x", ["y"])]
)
def test_values_that_trl_reads_differently_are_a_change(written: Any, meant: Any) -> None:
    assert not same_value(written, meant)


def test_only_strings_that_spell_a_number_or_a_boolean_become_one() -> None:
    assert [2e-5, True, "adamw_torch", "1.5x", 3] == [
        typed(v) for v in ("2e-5", "TRUE", _Optimizer.ADAMW, "1.5x", 3)
    ]


def test_a_comment_cannot_be_left_by_a_line_break_in_a_value() -> None:
    assert "one two?three" == one_line("one\n\rtwo\x85three".replace("\x85", "\x07"))
    assert "\n" not in one_line({"a": "x\u2028y\nz"})
