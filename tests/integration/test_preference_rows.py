"""Answers and ratings reach TRL as they were given: texts, system texts, margins, labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest

from autotune.core.job import DatasetSource, Trainer
from autotune.core.profile import DatasetProfile
from autotune.dataset.prepare import prepare
from autotune.probe.child.rows import take_rows
from tests.support.cli import DATA
from tests.support.tiny_tokenizer import tiny_config, write_tokenizer

pytestmark = pytest.mark.integration
datasets.disable_progress_bars()

HUMAN = {"from": "human", "value": "hi there"}
GOOD = {"from": "gpt", "value": "hello"}
BAD = {"from": "gpt", "value": "no"}

Prepare = Callable[..., DatasetProfile]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepare:
    def call(rows: Path | list[dict[str, Any]], trainer: Trainer) -> DatasetProfile:
        path = rows
        if isinstance(rows, list):
            path = tmp_path / "rows.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return prepare(
            DatasetSource(path=str(path)),
            trainer=trainer,
            tokenizer_dir=write_tokenizer(tmp_path / "tokenizer"),
            model_config=tiny_config(),
            options={},
            out_dir=tmp_path / "out",
            cache_dir=tmp_path / "cache",
        )

    return call


@pytest.fixture(autouse=True)
def caching() -> Iterator[None]:
    yield
    datasets.enable_caching()  # taking rows switches it off, which is right in a measuring process


def converted(profile: DatasetProfile) -> list[dict[str, Any]]:
    assert profile.converted_file is not None
    return datasets.Dataset.from_parquet(profile.converted_file, keep_in_memory=True).to_list()


def spoken(turns: Any) -> list[str]:
    """Return the texts of turns in any spelling."""
    listed = turns if isinstance(turns, list) else [turns]
    return [turn["value"] if "value" in turn else turn["content"] for turn in listed]


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder is not beside the clone")
@pytest.mark.parametrize("trainer", [Trainer.DPO, Trainer.REWARD, Trainer.KTO])
def test_real_pairs_keep_every_text_of_every_row(trainer: Trainer, prepared: Prepare) -> None:
    given = json.loads((DATA / "dpo_en_demo.json").read_text("utf-8"))
    profile = prepared(DATA / "dpo_en_demo.json", trainer)
    wanted = [
        {"prompt": spoken(row["conversations"]), **{n: spoken(row[n]) for n in SIDES}}
        for row in given
    ]
    assert wanted == [{n: spoken(said) for n, said in row.items()} for row in converted(profile)]
    both = 2 if trainer is Trainer.KTO else 1  # TRL makes two rated rows of a pair
    assert (len(given), both * len(given)) == (profile.rows_given, profile.rows_used)


SIDES = ("chosen", "rejected")


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder is not beside the clone")
def test_real_ratings_keep_every_text_and_label(prepared: Prepare) -> None:
    given = json.loads((DATA / "kto_en_demo.json").read_text("utf-8"))
    profile = prepared(DATA / "kto_en_demo.json", Trainer.KTO)
    for row, made in zip(given, converted(profile), strict=True):
        assert spoken(row["messages"]) == spoken(made["prompt"]) + spoken(made["completion"])
        assert row["label"] == made["label"]
    labels = datasets.load_from_disk(profile.rows_dir)["label"]
    assert [row["label"] for row in given] == list(labels)


def test_margins_reach_rewards_collator(prepared: Prepare) -> None:
    from trl.trainer.reward_trainer import DataCollatorForPreference

    rows = [
        {"conversations": [HUMAN], "chosen": GOOD, "rejected": BAD, "margin": n / 2}
        for n in range(4)
    ]
    profile = prepared(rows, Trainer.REWARD)
    assert [0.0, 0.5, 1.0, 1.5] == [row["margin"] for row in converted(profile)]
    taken = take_rows(Trainer.REWARD, profile.rows_dir, [3, 1], None)
    batch = DataCollatorForPreference(pad_token_id=0)(list(taken))
    assert [1.5, 0.5] == batch["margin"].tolist()


def test_rows_without_margins_have_none(prepared: Prepare) -> None:
    rows = [{"prompt": "hi", "chosen": " hello", "rejected": " no"}] * 2
    taken = take_rows(Trainer.REWARD, prepared(rows, Trainer.REWARD).rows_dir, [0], None)
    assert "margin" not in taken.column_names


@pytest.mark.parametrize(
    ("row", "trainer"),
    [
        ({"conversations": [HUMAN], "chosen": GOOD, "rejected": BAD}, Trainer.DPO),
        ({"conversations": [HUMAN, GOOD], "label": True}, Trainer.KTO),
        ({"conversations": [HUMAN, GOOD]}, Trainer.SFT),
    ],
)
def test_texts_of_a_system_column_are_trained_on(
    row: dict[str, Any], trainer: Trainer, prepared: Prepare
) -> None:
    profile = prepared([{**row, "system": "be kind"}, {**row, "system": ""}], trainer)
    assert "texts of column 'system' to a first message" in (profile.conversion or "")
    first, second = (next(iter(row.values())) for row in converted(profile))
    assert ["be kind", "hi there"] == spoken(first)[:2]
    assert ["hi there"] == spoken(second)[:1]
    ids = "input_ids" if trainer is Trainer.SFT else "prompt_ids"
    longer, shorter = (len(ids) for ids in datasets.load_from_disk(profile.rows_dir)[ids])
    assert longer > shorter


def test_a_system_column_that_is_not_read_is_remarked(prepared: Prepare) -> None:
    rows = [{"system": "be kind", "prompt": "hi", "chosen": " hello", "rejected": " no"}] * 2
    codes = {notice.code for notice in prepared(rows, Trainer.DPO).notices}
    assert "unread-columns" in codes


def test_uneven_ratings_are_remarked_over_all_rows(prepared: Prepare) -> None:
    rows = [{"prompt": "hi", "completion": " hello", "label": n == 0} for n in range(5)]
    (notice,) = (n for n in prepared(rows, Trainer.KTO).notices if n.code == "uneven-ratings")
    assert "1 of 5 rows are rated desirable" in notice.message


def test_rows_of_openais_fine_tuning_are_prepared(prepared: Prepare) -> None:
    said = {"role": "user", "content": "hi there", "name": "ann"}
    row = {
        "input": {"messages": [said], "tools": [], "parallel_tool_calls": True},
        "preferred_output": [{"role": "assistant", "content": "hello"}],
        "non_preferred_output": [{"role": "assistant", "content": "no"}],
    }
    made = converted(prepared([row, row], Trainer.DPO))
    assert [said] == made[1]["prompt"]
    assert ["hello", "no"] == [spoken(made[1][side])[0] for side in SIDES]
