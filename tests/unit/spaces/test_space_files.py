"""Search-space files: shipped ones are sound, mistakes are answered with file, line and name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.core.errors import BadInput
from autotune.knobs.catalog import BY_NAME
from autotune.spaces.load import find_space, list_spaces, read_space, space_hash, spaces_dir
from autotune.spaces.schema import json_schema

HEAD = "schema_version: 1\nname: mine\ntrainer: sft\ndescribe: a test\nknobs:\n"


def write(folder: Path, knobs: str, head: str = HEAD) -> Path:
    file = folder / "mine.yaml"
    file.write_text(head + knobs, encoding="utf-8")
    return file


def test_every_shipped_space_is_read_and_called_by_its_file_name() -> None:
    spaces = list_spaces()
    assert {"sft", "quick", "neutral-only"} <= {s.name for _, s in spaces}
    for path, space in spaces:
        assert path.stem == space.name
        assert find_space(space.name) == path
        assert set(space.knobs) <= set(BY_NAME)


@pytest.mark.parametrize(
    ("line", "knobs", "words"),
    [
        (6, "  max_lenght: auto\n", "did you mean 'max_length'"),
        (7, "  max_length: auto\n  paking: [none]\n", "did you mean 'packing'"),
        (6, "  packing: [none, bfdd]\n", "bfd_split"),
        (6, "  max_length: [512, -1]\n", "positive whole number"),
        (6, "  max_length: [512, '512']\n", "positive whole number"),
        (6, "  padding_free: [0, 1]\n", "expected false, true"),
        (7, "  packing: [none]\n  padding_free: {choices: [true], when: {x: [1]}}\n", "'x'"),
        (6, "  quantization: [none, 4bits]\n", "did you mean '4bit'"),
        (
            7,
            "  peft: [none, lora]\n  quantization: {choices: [none], when: {peft: [lorra]}}\n",
            "did you mean 'lora'",
        ),
        (6, "  peft: {choices: [none], when: {peft: [lora]}}\n", "depends on itself"),
        (6, "  precompute_ref_log_probs: [true]\n", "it is a knob of dpo, kto"),
        (6, "  packing: 3\n", "packing is 3, expected auto or a list of choices"),
        (6, "  packing: bfd\n", "packing is 'bfd', expected auto or a list of choices"),
        (6, "  packing: []\n", "packing is [], expected auto or a list of choices"),
        (6, "  packing: {when: {}}\n", "packing"),
        (6, "  packing: {choices: [none], sometimes: {}}\n", "packing"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_file_line_and_what_was_expected(
    tmp_path: Path, line: int, knobs: str, words: str
) -> None:
    file = write(tmp_path, knobs)
    with pytest.raises(BadInput) as caught:
        read_space(file)
    assert f"mine.yaml:{line}:" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "just words", "knobs: [\n", "a: 1\na: 2\n", "\tknobs: {}\n"],
)
def test_a_file_that_is_no_space_is_bad_input_that_names_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"mine\.yaml"):
        read_space(file)


def test_a_file_that_is_not_text_is_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadInput, match=r"mine\.yaml"):
        read_space(file)


def test_another_schema_version_is_refused_by_name(tmp_path: Path) -> None:
    file = write(tmp_path, "  packing: [none]\n", HEAD.replace("version: 1", "version: 2"))
    with pytest.raises(BadInput, match=r"mine\.yaml:1: schema_version"):
        read_space(file)


@pytest.mark.parametrize("knobs", ["  {}\n", "  packing: []\n", "  packing: {choices: []}\n"])
def test_a_space_in_which_there_is_nothing_to_try_is_refused(tmp_path: Path, knobs: str) -> None:
    with pytest.raises(BadInput, match=r"mine\.yaml"):
        read_space(write(tmp_path, knobs))


def test_an_unknown_space_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="'quick'"):
        find_space("quik")
    with pytest.raises(BadInput, match="no search space file"):
        find_space("nowhere/mine.yaml")


def test_the_hash_is_of_what_is_tried_not_of_what_it_is_called(tmp_path: Path) -> None:
    one = read_space(write(tmp_path, "  packing: [none, bfd]\n"))
    renamed = read_space(
        write(tmp_path, "  packing: [none, bfd]\n", HEAD.replace("name: mine", "name: other"))
    )
    other = read_space(write(tmp_path, "  packing: [none]\n"))
    assert space_hash(one) == space_hash(renamed)
    assert space_hash(one) != space_hash(other)


def test_the_committed_json_schema_is_the_models_own() -> None:
    committed = json.loads((spaces_dir() / "schema.json").read_text(encoding="utf-8"))
    assert json_schema() == committed, (
        "write it anew: python -m autotune.spaces.schema > search_spaces/schema.json"
    )
