"""What an editor is told of a space file, and what `autotune spaces` prints of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.app import main
from autotune.knobs.catalog import BY_NAME, KNOBS
from autotune.knobs.knob import OFFLINE
from autotune.spaces.json_schema import json_schema
from autotune.spaces.load import list_spaces, read_space, spaces_dir


def printed(capsys: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Return what ``autotune spaces`` prints."""
    monkeypatch.setattr(sys, "argv", ["autotune", "spaces", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert 0 == ended.value.code, said.err
    return str(said.out)


def test_the_committed_schema_is_the_one_that_is_printed(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = (spaces_dir() / "schema.json").read_text(encoding="utf-8")
    assert printed(capsys, monkeypatch, "schema") == committed, (
        "write it anew: autotune spaces schema > search_spaces/schema.json"
    )


def test_an_editor_knows_every_knob_with_its_help_and_choices() -> None:
    schema = json_schema()
    knobs = schema["properties"]["knobs"]
    assert set(BY_NAME) == set(knobs["properties"])
    assert knobs["additionalProperties"] is False
    for row in KNOBS:
        knob = knobs["properties"][row.name]
        assert row.help == knob["description"]
        pointer = {"$ref": f"#/definitions/choices/{row.name}"}
        auto, listed, conditional = knob["anyOf"]
        assert ({"const": "auto"}, pointer) == (auto, listed)
        assert {"anyOf": [auto, listed]} == conditional["properties"]["choices"]
        item = schema["definitions"]["choices"][row.name]["items"]
        for choice in row.choices or (1, 512):
            assert choice in item.get("enum", [choice]) and row.accepts(choice)


def test_conditions_are_typed_by_the_knob_they_are_on() -> None:
    schema = json_schema()
    when = schema["definitions"]["when"]
    assert when["additionalProperties"] is False
    for row in KNOBS:
        assert {"$ref": f"#/definitions/choices/{row.name}"} == when["properties"][row.name]


def test_a_knob_of_another_trainer_is_underlined() -> None:
    rules = {r["if"]["properties"]["trainer"]["const"]: r["then"] for r in json_schema()["allOf"]}
    assert {t.value for t in OFFLINE} == set(rules)
    names = rules["reward"]["properties"]["knobs"]["propertyNames"]["enum"]
    assert "max_length" in names and "packing" not in names


@pytest.mark.parametrize("name", [space.name for _, space in list_spaces()])
def test_what_show_prints_is_a_space_whose_schema_is_found_from_anywhere(
    name: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(printed(capsys, monkeypatch, "show", name), encoding="utf-8")
    assert dict(list_spaces_by_name())[name] == read_space(file)
    named = file.read_text("utf-8").splitlines()[0]
    prefix = "# yaml-language-server: $schema=file://"
    assert named.startswith(prefix)
    assert Path(named.removeprefix(prefix)) == spaces_dir() / "schema.json"
    # A file of the user's own is printed as it is.
    assert file.read_text("utf-8") == printed(capsys, monkeypatch, "show", str(file))


def list_spaces_by_name() -> list[tuple[str, Any]]:
    return [(space.name, space) for _, space in list_spaces()]


def test_json_is_printed_for_programs_and_is_a_space_too(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = json.loads(printed(capsys, monkeypatch, "list", "--format", "json"))
    assert [space.name for _, space in list_spaces()] == [one["name"] for one in listed]
    file = tmp_path / "mine.json"
    shown = printed(capsys, monkeypatch, "show", "quick", "--format", "json")
    file.write_text(shown, encoding="utf-8")
    assert dict(list_spaces_by_name())["quick"] == read_space(file)


def test_lines_are_whole_in_a_pipe(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = printed(capsys, monkeypatch, "list").splitlines()
    assert len(list_spaces()) == len(listed)
    shown = printed(capsys, monkeypatch, "show", "quick", "--trainer", "reward").splitlines()
    assert "  left out, since reward has none: packing, padding_free" == shown[-1]


def test_check_counts_what_may_be_tried(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    head = "schema_version: 1\nname: m\ntrainer: any\ndescribe: d\nknobs:\n"
    file.write_text(head + "  packing: auto\n  max_length: auto\n", encoding="utf-8")
    said = printed(capsys, monkeypatch, "check", str(file))
    assert "for any trainer with 2 knobs: at most 4 assignments, times those of max_length." in said
    file.write_text(head + "  packing: [bfd]\n", encoding="utf-8")
    said = printed(capsys, monkeypatch, "check", str(file))
    assert "with 1 knob: at most 1 assignment." in said
