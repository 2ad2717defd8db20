"""A mistake in a search-space file is one sentence: file, line, what was found and expected."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from autotune.core.errors import BadInput
from autotune.spaces.load import list_spaces, read_space

HEAD = "schema_version: 1\nname: mine\ntrainer: sft\ndescribe: a test\nknobs:\n"
LORA = "  peft: [none, lora]\n"


def refusal(folder: Path, content: bytes) -> str:
    """Return what a file is refused with."""
    file = folder / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_space(file)
    said = str(caught.value)
    assert said.startswith(str(file))
    return said.removeprefix(str(file))


#: Below the head of five lines: the line of the mistake, the knobs, words of the sentence.
KNOBS = [
    (6, "  max_lenght: auto\n", "unknown knob 'max_lenght'; did you mean 'max_length'?"),
    (7, "  max_length: auto\n  paking: [none]\n", "did you mean 'packing'?"),
    (6, "  8: [none]\n", "unknown knob 8."),
    (6, "  ~: [none]\n", "unknown knob null."),
    (6, "  use_peft: [true]\n", "use_peft is turned by the knob peft."),
    (6, "  activation_checkpointing: auto\n", "turned by the knob gradient_checkpointing."),
    (6, "  gradient_accumulation_steps: [1]\n", "by the knob per_device_train_batch_size."),
    (6, "  precompute_ref_log_probs: [true]\n", "sft has no precompute_ref_log_probs; it is a"),
    (6, "  packing: [none, bfdd]\n", "packing cannot be 'bfdd', expected none, bfd, bfd_split or"),
    (8, "  packing:\n  - none\n  - bfdd\n", "packing cannot be 'bfdd'"),
    (6, "  quantization: [none, 4bits]\n", "did you mean '4bit'?"),
    (6, "  dtype: [bf16]\n", "did you mean 'bfloat16'?"),
    (6, "  gradient_checkpointing: [true]\n", "cannot be true, expected none, full, selective or"),
    (6, "  max_length: [512, -1]\n", "cannot be -1, expected a whole number from 1 to"),
    (6, "  max_length: [0]\n", "cannot be 0"),
    (6, "  max_length: [512, '512']\n", "cannot be '512', expected a whole number from 1 to"),
    (6, "  max_length: ['512']\n", "or null: remove the quotes."),
    (6, "  max_length: [512.0]\n", "cannot be 512.0"),
    (6, "  max_length: [1e3]\n", "cannot be 1000.0"),
    (6, "  max_length: [.nan]\n", "cannot be nan"),
    (6, "  max_length: [99999999999999]\n", "from 1 to 2,147,483,647"),
    (6, "  max_length: [8:30]\n", "cannot be '8:30'"),
    (6, "  max_length: [2024-01-01]\n", "cannot be 2024-01-01"),
    (6, "  max_length: [[512]]\n", "cannot be a list"),
    (6, "  max_length: [{a: 1}]\n", "cannot be a mapping"),
    (6, "  max_length: &a [*a]\n", "cannot be a list"),
    (6, "  max_length: [auto, 512]\n", "auto stands alone"),
    (6, "  max_length: Auto\n", "max_length is 'Auto', expected auto or a list"),
    (6, "  per_device_train_batch_size: [null]\n", "cannot be null, expected a whole number"),
    (6, "  padding_free: [0, 1]\n", "cannot be 0, expected false or true."),
    (6, "  padding_free: [yes]\n", "cannot be 'yes', expected false or true."),
    (6, "  padding_free: ['true']\n", "expected false or true: remove the quotes."),
    (6, "  pad_to_multiple_of: ['null']\n", "expected null, 8, 16, 32, 64 or 128: remove the qu"),
    (6, "  pad_to_multiple_of: [none]\n", "cannot be 'none', expected null, 8,"),
    (6, "  packing: [null, bfd]\n", "packing cannot be null, expected none,"),
    (6, "  packing: [none, none]\n", "packing lists none twice."),
    (6, "  packing: 3\n", "packing is 3, expected auto or a list of choices."),
    (6, "  packing: bfd\n", "packing is 'bfd', expected auto or a list of choices: write [bfd]."),
    (6, "  padding_free: true\n", "padding_free is true, expected auto or a list of choices: wr"),
    (6, "  packing: []\n", "packing is an empty list, expected auto or a list of choices."),
    (6, "  packing:\n", "packing is null, expected auto or a list"),
    (6, "  packing: !!set {none}\n", "packing is a set"),
    (6, "  packing: {}\n", "choices is missing; the keys of packing are choices and when."),
    (6, "  packing: {when: {}}\n", "choices is missing"),
    (7, "  packing:\n    choices: []\n", "packing is an empty list"),
    (6, "  packing: {choises: [none]}\n", "unknown key 'choises'; did you mean 'choices'?"),
    (8, "  packing:\n    choices: [none]\n    wen: {}\n", "did you mean 'when'?"),
    (7, LORA + "  lora_r: {choices: [8], when: {peff: [lora]}}\n", "unknown knob 'peff'; did you"),
    (7, LORA + "  lora_r: {choices: [8], when: {peft: [lorra]}}\n", "did you mean 'lora'?"),
    (7, LORA + "  lora_r: {choices: [8], when: {peft: [dora]}}\n", "this space never tries. It tr"),
    (7, LORA + "  lora_r: {choices: [8], when: {peft: lora}}\n", "list of choices: write [lora]."),
    (7, LORA + "  lora_r: {choices: [8], when: {peft: auto}}\n", "when peft is 'auto', expected"),
    (7, LORA + "  lora_r: {choices: [8], when: {peft: }}\n", "when peft is null, expected a list"),
    (7, LORA + "  lora_r: {choices: [8], when: {peft: []}}\n", "when peft is an empty list"),
    (7, LORA + "  lora_r: {choices: [8], when: [peft]}\n", "when of lora_r is a list, expected kn"),
    (7, LORA + "  lora_r: {choices: [8], when: peft}\n", "when of lora_r is 'peft'"),
    (7, LORA + "  lora_r: {choices: [8], when: }\n", "when of lora_r is null"),
    (6, "  lora_r: {choices: [8], when: {precompute_ref_log_probs: [true]}}\n", "sft has no prec"),
    (6, "  peft: {choices: [none], when: {peft: [none]}}\n", "peft depends on itself."),
    (
        6,
        "  peft: {choices: [none], when: {dtype: [float32]}}\n"
        "  dtype: {choices: [float32], when: {peft: [none]}}\n",
        "peft depends on itself.",
    ),
    (7, "  packing: [none]\n  packing: [bfd]\n", 'found duplicate key "packing".'),
    (8, "  packing:\n    choices: [none]\n    choices: [bfd]\n", 'found duplicate key "choices".'),
    (6, "\tpacking: [none]\n", "Indent with spaces, not with tabs."),
    (6, "  max_length: *n\n", "found undefined alias 'n'."),
    (7, "  packing: [none\n", "this is not YAML: expected ',' or ']'"),
    (7, "  packing: [none]\n max_length: [8]\n", "this is not YAML"),
    (6, "  packing: !foo [none]\n", "it has the tag '!foo'. Write plain values."),
    (6, "  packing: !!python/object/apply:os.system [ls]\n", "Write plain values."),
    (7, "  packing: [none]\n---\na: 1\n", "but found another document."),
]


@pytest.mark.parametrize(("line", "knobs", "words"), KNOBS)
def test_a_mistake_in_the_knobs_has_its_line_and_the_way_out(
    tmp_path: Path, line: int, knobs: str, words: str
) -> None:
    said = refusal(tmp_path, (HEAD + knobs).encode())
    assert said.startswith(f":{line}: ")
    assert words in said


GOOD = HEAD + "  packing: [none]\n"
WHOLE = [
    (1, "", "the file holds nothing, expected a mapping with schema_version, name, trainer,"),
    (1, "# nothing\n", "holds nothing"),
    (1, "[]", "holds a list"),
    (1, "just words", "holds text"),
    (1, "a: 1\na: 2\n", None),
    (5, HEAD, "knobs is nothing, expected knobs with their choices."),
    (5, HEAD + "  {}\n", "knobs is an empty mapping"),
    (5, HEAD + "  - packing\n", "knobs is a list"),
    (5, HEAD.replace("knobs:", "knobs: all"), "knobs is text"),
    (5, HEAD.replace("knobs:", "knob:") + "  packing: [none]\n", "did you mean 'knobs'?"),
    (4, GOOD.replace("describe", "description"), "did you mean 'describe'?"),
    (7, GOOD + "seed: 3\n", "unknown key 'seed'. The keys of a search space are"),
    (1, "model_name_or_path: m\nlearning_rate: 1e-5\n", "unknown key 'model_name_or_path'"),
    *(
        (1, GOOD.replace(f"{key}: {value}\n", ""), f"{key} is missing; the keys of a search space")
        for key, value in (
            ("schema_version", "1"),
            ("name", "mine"),
            ("trainer", "sft"),
            ("describe", "a test"),
        )
    ),
    *(
        (1, GOOD.replace("version: 1", f"version: {value}"), f"schema_version is {value}, expected")
        for value in ("2", "'1'", "true", "1.0", "null")
    ),
    (2, GOOD.replace("mine", "8"), "name is 8, expected text."),
    (2, GOOD.replace("mine", ""), "name is null, expected text."),
    (2, GOOD.replace("mine", "' '"), "name is ' ', expected text."),
    (4, GOOD.replace("a test", "[a]"), "describe is a list, expected text."),
    (3, GOOD.replace("sft", "stf"), "expected sft, dpo, reward, kto or any; did you mean 'sft'?"),
    (3, GOOD.replace("sft", "SFT"), "did you mean 'sft'?"),
    (3, GOOD.replace("sft", "[sft, dpo]"), "trainer is a list, expected"),
    (3, GOOD.replace("sft", "grpo"), "trainer is 'grpo', expected sft, dpo, reward, kto or any."),
    (4, GOOD.replace("a test", "a\x07b"), "it has the character '\\x07'"),
]


@pytest.mark.parametrize(("line", "text", "words"), WHOLE)
def test_a_mistake_in_the_file_has_its_line_and_what_was_expected(
    tmp_path: Path, line: int, text: str, words: str | None
) -> None:
    said = refusal(tmp_path, text.encode())
    if words is None:
        assert said.startswith(":2: ") and 'found duplicate key "a"' in said
    else:
        assert said.startswith(f":{line}: ")
        assert words in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00\x01", " is not text in UTF-8: byte 0 is 0xff. Save it as UTF-8."),
        (GOOD.encode("utf-16"), " is not text in UTF-8"),
        (GOOD.replace("a test", "größer").encode("latin-1"), "byte 54 is 0xf6"),
        ((HEAD + "  max_length: " + "[" * 2000).encode(), " is nested too deeply to be read."),
    ],
    ids=["binary", "UTF-16", "Latin-1", "nested"],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in refusal(tmp_path, content)


def test_whatever_a_file_says_it_is_a_space_or_bad_input(tmp_path: Path) -> None:
    draw = random.Random(3)
    shipped = [path.read_text("utf-8") for path, _ in list_spaces()]
    words = ["null", "[", "]", "{a: 1}", "auto", "8", "&a", "*a", "- ", "\n", ": ", "lora", "'"]
    file = tmp_path / "mine.yaml"
    for _ in range(300):
        text = draw.choice(shipped)
        for _ in range(draw.randint(1, 4)):
            start = draw.randrange(len(text))
            end = start + draw.randint(0, 12)
            text = text[:start] + draw.choice(words) + text[end:]
        file.write_text(text, encoding="utf-8")
        try:
            assert read_space(file).knobs
        except BadInput as refused:
            assert str(file) in str(refused)
