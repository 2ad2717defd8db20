"""Whole preparations through TRL's own trainers on a stand-in model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from autotune.core.errors import BadInput, NotBuiltYet, ToolFailure
from autotune.core.job import DatasetSource, Trainer
from autotune.core.lengths import Lengths
from autotune.core.profile import DatasetProfile
from autotune.dataset.prepare import prepare, read_profile
from tests.support.tiny_tokenizer import (
    DEAF_TEMPLATE,
    TEMPLATE,
    tiny_config,
    write_tokenizer,
)

pytestmark = pytest.mark.integration
datasets.disable_progress_bars()

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
USER = {"role": "user", "content": "hi there"}
BOT = {"role": "assistant", "content": "hello"}

Prepare = Callable[..., DatasetProfile]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("tokenizers")
    return {
        "whole": write_tokenizer(home / "whole"),
        "no_template": write_tokenizer(home / "no_template", template=None),
        "no_pad": write_tokenizer(home / "no_pad", pad=False),
        "neither": write_tokenizer(home / "neither", pad=False, eos=False),
        "no_eos": write_tokenizer(home / "no_eos", eos=False),
        "deaf": write_tokenizer(home / "deaf", template=DEAF_TEMPLATE),
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(tmp_path: Path, cache: Path, tokenizers: dict[str, Path]) -> Prepare:
    def call(rows: Any, tokenizer: str = "whole", **changes: Any) -> DatasetProfile:
        path = rows
        if isinstance(rows, list):
            path = tmp_path / "rows.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        settings: dict[str, Any] = {
            "trainer": Trainer.SFT,
            "tokenizer_dir": tokenizers[tokenizer],
            "model_config": tiny_config(),
            "options": {},
            "out_dir": tmp_path / "out",
            "cache_dir": cache,
            **changes,
        }
        return prepare(DatasetSource(path=str(path)), **settings)

    return call


def rows_of(profile: DatasetProfile) -> datasets.Dataset:
    return datasets.load_from_disk(profile.rows_dir)


def lengths_of(profile: DatasetProfile) -> Lengths:
    return Lengths.read(Path(profile.rows_dir).parent / "lengths.npz")


def codes(profile: DatasetProfile) -> list[str]:
    return [notice.code for notice in profile.notices]


def text_of(profile: DatasetProfile, tokenizer: Path, row: int = 0) -> str:
    from transformers import AutoTokenizer

    opened = AutoTokenizer.from_pretrained(str(tokenizer))
    return str(opened.decode(rows_of(profile)[row]["input_ids"]))


@pytest.mark.parametrize(
    ("name", "trainer", "layout", "rows"),
    [
        ("alpaca_en_demo.json", Trainer.SFT, "instruction/input/output", 999),
        ("glaive_toolcall_en_demo.json", Trainer.SFT, "conversations with tools", 300),
        ("c4_demo.jsonl", Trainer.SFT, "text", 300),
        ("kto_en_demo.json", Trainer.SFT, "messages", 300),
        ("dpo_en_demo.json", Trainer.DPO, "conversation preference", 300),
        ("dpo_en_demo.json", Trainer.REWARD, "conversation preference", 300),
        ("kto_en_demo.json", Trainer.KTO, "rated messages", 300),
    ],
)
def test_every_shared_file_is_prepared_for_its_trainer(
    run: Prepare, name: str, trainer: Trainer, layout: str, rows: int
) -> None:
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{path} is not there: the shared trial data is not part of the project")
    demo = Path(__file__).resolve().parents[2] / "autotune" / "demo"
    from transformers import AutoConfig

    profile = run(
        path, trainer=trainer, tokenizer_dir=demo, model_config=AutoConfig.from_pretrained(demo)
    )
    assert (layout, rows, rows) == (profile.layout, profile.rows_given, profile.rows_used)
    lengths = lengths_of(profile)
    assert rows == len(lengths)
    assert profile.tokens == lengths.both_sides(None).sum()
    assert profile.label_tokens == lengths.labels_kept(None) > 0
    assert profile.quantiles["1.0"] == lengths.longest == lengths.tokens[profile.longest_row]
    if trainer is Trainer.SFT:
        made = rows_of(profile)
        assert ["input_ids", "labels"] == made.column_names
        longest = made[profile.longest_row]
        assert lengths.longest == len(longest["input_ids"]) == len(longest["labels"])


def test_converted_rows_train_under_trl_as_they_are_written(run: Prepare) -> None:
    # what the emitted YAML points TRL at must give the very tokens that were measured
    path = SHARED / "glaive_toolcall_en_demo.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there: the shared trial data is not part of the project")
    first = run(path)
    assert first.converted_file is not None
    assert "tool_calls" in str(first.conversion)
    out = Path(first.rows_dir).parent
    again = run(Path(first.converted_file), out_dir=out.with_name("again"))
    assert again.conversion is None
    assert again.converted_file is None
    assert rows_of(first)["input_ids"] == rows_of(again)["input_ids"]


def test_prepared_rows_are_the_tokens_a_real_run_would_train_on(
    run: Prepare, tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    from autotune.dataset.trl_rows import stand_in

    rows = [{"prompt": [USER], "completion": [BOT]}, {"prompt": [USER, BOT], "completion": [BOT]}]
    profile = run(rows)
    trainer = SFTTrainer(
        model=stand_in(400),
        args=SFTConfig(
            output_dir=str(tmp_path / "trl"),
            use_cpu=True,
            bf16=False,
            report_to="none",
            max_length=9,
        ),
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(str(tokenizers["whole"])),
    )
    lengths = lengths_of(profile)
    kept = lengths.kept_rows(9)
    mine = [row for row, keep in zip(rows_of(profile), kept, strict=True) if keep]
    assert [row["input_ids"][:9] for row in mine] == list(trainer.train_dataset["input_ids"])
    assert [row["labels"][:9] for row in mine] == list(trainer.train_dataset["labels"])


def test_nothing_is_tokenised_twice(run: Prepare, tmp_path: Path) -> None:
    rows = [{"text": f"only here {n}"} for n in range(5)]
    steps: list[str] = []
    first = run(rows, progress=lambda step, *_: steps.append(step))
    stations = ["load", "recognise", "read", "tokenise", "measure", "follow", "save"]
    assert stations == list(dict.fromkeys(steps))
    steps.clear()
    again = run(rows, out_dir=tmp_path / "again", progress=lambda step, *_: steps.append(step))
    assert [] == steps
    assert first.fingerprint == again.fingerprint
    assert str((tmp_path / "again" / "rows").resolve()) == again.rows_dir
    assert rows_of(first)["input_ids"] == rows_of(again)["input_ids"]


def test_a_layout_recognised_from_a_sample_is_said_in_the_profile(run: Prepare) -> None:
    # a list of objects whose keys change is a column of free JSON, which is looked into row by row
    rows = [{"messages": [USER, BOT]}] * 20 + [{"messages": [{**USER, "name": "x"}, BOT]}] * 20
    assert "sampled-recognition" not in codes(run(rows))
    profile = run(rows, scanned_rows=10)
    (notice,) = [n for n in profile.notices if n.code == "sampled-recognition"]
    assert "from 10 of 40 rows, 5 spread evenly and the last 5" in notice.message
    assert (40, 40) == (profile.rows_given, profile.rows_used)


def test_other_rows_tokenizers_and_options_are_other_tokens(run: Prepare, tmp_path: Path) -> None:
    rows = [{"text": "one", "body": "two"}]
    prints = [
        run(rows).fingerprint,
        run(rows, tokenizer="no_pad").fingerprint,
        run(rows, options={"dataset_text_field": "body"}).fingerprint,
        run([*rows, *rows]).fingerprint,
    ]
    assert 4 == len(set(prints))


def test_a_profile_is_read_back_as_it_was_returned(run: Prepare, tmp_path: Path) -> None:
    profile = run([{"text": "a b c"}])
    assert profile == read_profile(tmp_path / "out")
    with pytest.raises(ToolFailure, match=r"profile\.json"):
        read_profile(tmp_path / "nowhere")


def test_a_failed_preparation_leaves_nothing_behind(
    run: Prepare, tmp_path: Path, cache: Path
) -> None:
    before = set((cache / "prepared").iterdir()) if (cache / "prepared").exists() else set()
    with pytest.raises(BadInput):
        run([{"input_ids": [1, 9999]}])
    assert before == set((cache / "prepared").iterdir())
    assert not (tmp_path / "out").exists()


def test_trainers_without_a_preparation_are_refused_by_name(run: Prepare) -> None:
    with pytest.raises(NotBuiltYet, match="grpo"):
        run([{"prompt": "q"}], trainer=Trainer.GRPO)


def test_the_template_decides_whether_calls_stay_text(
    run: Prepare, tokenizers: dict[str, Path]
) -> None:
    turns = [("human", "q"), ("function_call", '{"name":"f"}'), ("observation", "o"), ("gpt", "a")]
    rows = [{"conversations": [{"from": f, "value": v} for f, v in turns], "tools": "[]"}]
    heard = run(rows)
    assert "function calls to tool_calls" in str(heard.conversion)
    assert '<call>{"name": "f", "arguments": {}}</call>' in text_of(heard, tokenizers["whole"])
    kept = run(rows, tokenizer="deaf")
    assert "kept as text" in str(kept.conversion)
    assert '{"name":"f"}' in text_of(kept, tokenizers["deaf"])


def test_calls_the_template_drops_are_counted(run: Prepare) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    rows = [{"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]}]
    (notice,) = run(rows, tokenizer="deaf").notices
    assert "1 of 1 rows: messages[].tool_calls (assistant) is not in the training" in notice.message
    assert not run(rows).notices


def test_answers_beside_a_prompt_nobody_reads_are_remarked(run: Prepare) -> None:
    rows = [{"question": "q", "chosen": "a", "rejected": "b"}]
    profile = run(rows, trainer=Trainer.DPO)
    (notice,) = (n for n in profile.notices if n.code == "unread-columns")
    assert "column 'question' (1 of 1 rows, first row 1" in notice.message
    assert "rename it to 'prompt'" in notice.message


def test_a_row_the_template_refuses_is_named(run: Prepare, tokenizers: dict[str, Path]) -> None:
    strict = TEMPLATE.replace(
        "{%- for message in messages %}",
        "{%- for message in messages %}{%- if message.role == 'system' %}"
        "{{ raise_exception('no system role') }}{%- endif %}",
    )
    folder = write_tokenizer(tokenizers["whole"].with_name("strict"), template=strict)
    rows = [{"messages": [USER, BOT]}, {"messages": [{"role": "system", "content": "s"}, USER]}]
    with pytest.raises(BadInput, match=r"at row 2 .*no system role"):
        run(rows, tokenizer_dir=folder)


def test_tokens_tokenised_in_bulk_are_those_trl_makes(run: Prepare) -> None:
    rng = np.random.default_rng(0)
    rows = [{"input_ids": rng.integers(4, 400, n).tolist()} for n in rng.integers(1, 30, 300)]
    profile = run(rows)
    made = rows_of(profile)
    assert [row["input_ids"] for row in rows] == list(made["input_ids"]) == list(made["labels"])


def test_masks_of_tokenised_rows_are_folded_into_labels(run: Prepare) -> None:
    rows = [{"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1]}] * 2
    assert 4 == run(rows, options={"completion_only_loss": True}).label_tokens
    assert 6 == run(rows).label_tokens


def test_preparing_touches_no_user_cache_and_no_hub(
    run: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was reached for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "user")
    run([{"text": "quite private"}])
    assert not (tmp_path / "user").exists()
    assert datasets.is_caching_enabled()
