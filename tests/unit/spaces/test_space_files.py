"""Search-space files: shipped ones are sound and try every knob; any other file is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME, KNOBS
from autotune.knobs.knob import OFFLINE
from autotune.spaces.load import find_space, list_spaces, read_space, space_for, space_hash

HEAD = "schema_version: 1\nname: mine\ntrainer: sft\ndescribe: a test\nknobs:\n"


def write(folder: Path, knobs: str, head: str = HEAD) -> Path:
    file = folder / "mine.yaml"
    file.write_text(head + knobs, encoding="utf-8")
    return file


def hash_of(folder: Path, knobs: str, head: str = HEAD) -> str:
    return space_hash(read_space(write(folder, knobs, head)))


def test_every_shipped_space_is_read_and_called_by_its_file_name() -> None:
    spaces = list_spaces()
    presets = {"quick", "thorough", "neutral-only", "long-context"}
    assert {*(t.value for t in OFFLINE), *presets} == {s.name for _, s in spaces}
    for path, space in spaces:
        assert path.stem == space.name
        assert find_space(space.name) == path
        assert set(space.knobs) <= set(BY_NAME)


def test_a_shipped_space_tries_every_knob_but_the_one_that_compiles() -> None:
    listed = {name for _, space in list_spaces() for name in space.knobs}
    assert {"torch_compile"} == {row.name for row in KNOBS} - listed


def test_every_preset_is_for_every_trainer_and_a_trainers_own_for_it_alone() -> None:
    for _, space in list_spaces():
        own = space.name in [t.value for t in OFFLINE]
        for trainer in OFFLINE:
            assert space.suits(trainer) == (not own or space.name == trainer.value)
        assert not space.suits(Trainer.GRPO)
    with pytest.raises(BadInput, match="is for sft, the job is dpo"):
        space_for(Trainer.DPO, "sft")
    assert "kto" == space_for(Trainer.KTO, None).name


def test_a_condition_may_be_on_a_knob_that_comes_later_or_is_not_searched(tmp_path: Path) -> None:
    text = "  padding_free: {choices: [false, true], when: {packing: [none]}}\n"
    assert ["padding_free"] == list(read_space(write(tmp_path, text)).knobs)
    later = read_space(write(tmp_path, f"{text}  packing: [none, bfd]\n"))
    assert {"packing": ["none"]} == later.dimensions()["padding_free"].when


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + HEAD + "  packing: [none, bfd]\n",
        (HEAD + "  packing: [none, bfd]\n").replace("\n", "\r\n"),
        "---\n" + HEAD.replace("a test", "größer — 長い") + "  packing:\n  - none\n  - bfd\n",
        HEAD + "  packing: &both [none, bfd]\n",
        HEAD + "  <<: {packing: [none, bfd]}\n",
        '{"schema_version": 1, "name": "m", "trainer": "sft", "describe": "x",'
        ' "knobs": {"packing": ["none", "bfd"]}}',
    ],
    ids=["BOM", "CRLF", "Unicode", "anchor", "merge key", "JSON"],
)
def test_yaml_is_read_however_it_is_written(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(text, encoding="utf-8", newline="")
    assert ["none", "bfd"] == read_space(find_space(str(file))).dimensions()["packing"].choices


def test_what_null_and_numbers_look_like_is_yamls(tmp_path: Path) -> None:
    text = "  pad_to_multiple_of:\n  -\n  - 8\n  max_length: [~, 1_024, 0x200, 0o10]\n"
    found = read_space(write(tmp_path, text)).knobs
    assert [None, 8] == found["pad_to_multiple_of"]
    assert [None, 1024, 512, 8] == found["max_length"]


def test_an_unknown_space_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'quick'"):
        find_space("quik")
    for name in ("", "mine", "../quick", "."):
        with pytest.raises(BadInput, match="unknown search space"):
            find_space(name)
    with pytest.raises(BadInput, match=r"nowhere/mine\.yaml does not exist"):
        find_space("nowhere/mine.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        find_space(str(tmp_path / "folder.yaml"))


def test_the_hash_is_of_what_is_tried_not_of_how_it_is_written(tmp_path: Path) -> None:
    rest = "  padding_free: {choices: [false, true], when: {packing: [none]}}\n"
    one = hash_of(tmp_path, "  packing: [none, bfd]\n" + rest)
    named = HEAD.replace("name: mine", "name: other").replace("sft", "any")
    assert one == hash_of(tmp_path, "  packing: [none, bfd]\n" + rest, named)
    assert one == hash_of(tmp_path, rest + "  packing: [bfd, none]\n")
    assert one != hash_of(tmp_path, "  packing: [none]\n" + rest)
    assert one != hash_of(tmp_path, "  packing: [none, bfd]\n  padding_free: [false, true]\n")
    assert one != hash_of(tmp_path, "  packing: auto\n" + rest)
