from __future__ import annotations

import pytest
import yaml

from autotune.emit.yaml_editor import YamlEditor

TEXT = """\
# head
a: 1   # one
"b": [x, y]  # flow

# about c
c:
  - p: 1
    q: 2   # deep
# about d
d: |
  block
  text

# about e
e:
f: 'quoted: yes'
env:
    X: 1 # of X
    # after X
    Y: two
"""


def edited(**changes: list[str]) -> str:
    editor = YamlEditor(TEXT)
    for name, lines in changes.items():
        editor.set(name, lines)
    return editor.render("added")


def test_nothing_changes_without_an_edit() -> None:
    assert TEXT == YamlEditor(TEXT).render("added")


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e", "f"])
def test_setting_one_key_keeps_every_comment_and_every_other_value(name: str) -> None:
    text = edited(**{name: [f"{name}: 99"]})
    assert {**yaml.safe_load(TEXT), name: 99} == yaml.safe_load(text)
    assert [w for w in TEXT.split("\n") if w.startswith("#")] == [
        w for w in text.split("\n") if w.startswith("#")
    ]


def test_a_value_is_replaced_in_its_line_with_the_remark_behind_it() -> None:
    assert TEXT.replace("a: 1   # one", "a: 5   # one") == edited(a=["a: 5"])


def test_a_block_takes_the_place_of_a_scalar() -> None:
    text = edited(a=["a:", "  - p: 3", "    q: 4"])
    assert [{"p": 3, "q": 4}] == yaml.safe_load(text)["a"]


def test_an_absent_key_is_appended_under_its_remark() -> None:
    assert TEXT + "\n# added\nnew: 1\n" == edited(new=["new: 1"])


def test_removing_a_key_takes_its_lines_and_no_comment_of_another() -> None:
    editor = YamlEditor(TEXT)
    editor.remove("c")
    text = editor.render("added")
    assert "# about c" in text
    assert "# about d" in text
    assert {k: v for k, v in yaml.safe_load(TEXT).items() if k != "c"} == yaml.safe_load(text)


def test_a_key_below_the_root_is_replaced_or_added_at_its_own_indent() -> None:
    editor = YamlEditor(TEXT)
    editor.set_within("env", "X", "7")
    editor.set_within("env", "Z", "9")
    text = editor.render("added")
    assert {"X": 7, "Y": "two", "Z": 9} == yaml.safe_load(text)["env"]
    assert "    X: 7 # of X\n    # after X\n    Y: two\n    Z: 9\n" in text


def test_every_copy_of_a_repeated_key_is_set() -> None:
    editor = YamlEditor("a: 1\nb: 2\na: 3\n")
    editor.set("a", ["a: 4"])
    assert "a: 4\nb: 2\na: 4\n" == editor.render("added")


def test_an_alias_is_replaced_where_it_stands_and_not_where_its_anchor_is() -> None:
    editor = YamlEditor("a: &x 1\nb: *x\n")
    editor.set("b", ["b: 2"])
    assert "a: &x 1\nb: 2\n" == editor.render("added")


@pytest.mark.parametrize("text", ["{a: 1}\n", "- a\n", "plain\n", ""])
def test_a_root_that_is_no_block_mapping_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no block mapping"):
        YamlEditor(text)
