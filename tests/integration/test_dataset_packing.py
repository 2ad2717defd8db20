"""Packing on lengths against trl.pack_dataset, bin for bin; shapes against TRL's collator."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, disable_progress_bars

from autotune.core.kept import Reference, kept_labels
from autotune.core.packing import STRATEGIES, pack
from autotune.core.shapes import shapes_of_pass
from tests.unit.core.test_lengths import plain

pytestmark = pytest.mark.integration
disable_progress_bars()

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def lengths_of(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    rng = np.random.default_rng(7)
    if name == "real":
        path = SHARED / "c4_demo.jsonl"
        if not path.is_file():
            pytest.skip(f"{path} is not there: the shared trial data is not part of the project")
        words = [len(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]
        return np.array(words * 4)
    made = {
        "skewed": lambda: rng.lognormal(4.5, 1.1, 2300).astype(np.int64) + 1,
        "short": lambda: rng.integers(0, 9, 2500),
        "equal": lambda: np.full(1001, 33),
        "long": lambda: rng.integers(900, 3000, 120),
        "one": lambda: np.array([5]),
    }
    return np.asarray(made[name](), dtype=np.int64)


def trl_packed(
    tokens: np.ndarray[Any, np.dtype[np.int64]], max_length: int, strategy: str, workers: int | None
) -> tuple[list[int], list[int] | None]:
    from trl import pack_dataset

    # every token carries its row, so that documents can be told apart afterwards
    rows = Dataset.from_dict({"input_ids": [[i] * int(n) for i, n in enumerate(tokens)]})
    packed = pack_dataset(rows, max_length, strategy, {"num_proc": workers})
    totals = [len(row) for row in packed["input_ids"]]
    if "seq_lengths" not in packed.column_names:
        return totals, None
    return totals, [len(parts) for parts in packed["seq_lengths"]]


@pytest.mark.parametrize("name", ["skewed", "short", "equal", "long", "one", "real"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("max_length", [8, 100, 1024])
def test_rows_are_packed_bin_for_bin_as_trl_packs_them(
    name: str, strategy: str, max_length: int
) -> None:
    tokens = lengths_of(name)
    totals, sequences = trl_packed(tokens, max_length, strategy, None)
    mine = pack(tokens, max_length, strategy)
    assert totals == mine.totals.tolist()
    if sequences is not None:
        assert sequences == mine.sequences.tolist()
    else:
        assert int((tokens > 0).sum()) == mine.sequences.sum()


@pytest.mark.parametrize("name", ["skewed", "long"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("reference", [Reference(300), Reference(300, splits=True)])
def test_label_tokens_keep_what_comes_before_them_as_trl_packs_them(
    name: str, strategy: str, reference: Reference
) -> None:
    from trl import pack_dataset

    tokens, max_length = lengths_of(name), 150
    # every token carries its place in its document, so that a piece shows what it has lost
    rows = Dataset.from_dict({"input_ids": [list(range(int(n))) for n in tokens]})
    kept = begins = 0
    for row in pack_dataset(rows, max_length, strategy)["input_ids"]:
        for number, at in enumerate(row):
            if number == 0 or at != row[number - 1] + 1:
                begins = at
            wanted = at // reference.length * reference.length
            kept += begins <= wanted and (reference.splits or not wanted)
    assert kept == pytest.approx(
        kept_labels(plain(*tokens.tolist()), max_length, strategy, reference), abs=1e-6
    )


def test_shards_are_those_of_trls_workers() -> None:
    tokens = lengths_of("skewed")
    totals, _ = trl_packed(tokens, 256, "bfd", 2)
    assert totals == pack(tokens, 256, "bfd", shards=2).totals.tolist()


@pytest.mark.parametrize("multiple", [None, 8, 64])
@pytest.mark.parametrize("packing", ["none", "bfd", "bfd_split", "wrapped"])
@pytest.mark.parametrize("padding_free", [False, True])
def test_micro_batches_have_the_shapes_trls_collator_makes(
    packing: str, padding_free: bool, multiple: int | None
) -> None:
    from trl import pack_dataset
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    tokens = lengths_of("skewed")[:300]
    max_length = 200
    order = np.random.default_rng(3)
    columns = {"input_ids": [[1] * min(int(n), max_length) for n in tokens]}
    if packing != "none":
        columns = {"input_ids": [[1] * int(n) for n in tokens]}
    rows = Dataset.from_dict(columns)
    if packing != "none":
        rows = pack_dataset(rows, max_length, packing)
    flat = padding_free or packing in ("bfd", "bfd_split")
    collate = DataCollatorForLanguageModeling(
        pad_token_id=0, padding_free=flat, pad_to_multiple_of=multiple
    )
    sampled = order.permutation(len(rows)).tolist()
    batches = [
        collate(rows.select(sampled[at : at + 4]).to_list()) for at in range(0, len(rows), 4)
    ]
    mine = shapes_of_pass(
        plain(*tokens.tolist()),
        batch=4,
        max_length=max_length,
        packing=packing,
        padding_free=padding_free,
        pad_to_multiple_of=multiple,
        seed=3,
    )
    shapes = [tuple(batch["input_ids"].shape) for batch in batches]
    assert shapes == list(zip(mine.tensor_rows.tolist(), mine.width.tolist(), strict=True))
    assert [int(b["input_ids"].numel()) for b in batches] == mine.padded_tokens.tolist()
    assert [int((b["input_ids"] != 0).sum()) for b in batches] == mine.useful_tokens.tolist()


@pytest.mark.parametrize("max_length", [None, 100])
@pytest.mark.parametrize("multiple", [None, 8])
def test_preference_batches_have_the_shapes_trls_collators_make(
    max_length: int | None, multiple: int | None
) -> None:
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    rng = np.random.default_rng(5)
    chosen, rejected = (rng.integers(2, 150, 50).astype(np.int64) for _ in range(2))
    collate = DataCollatorForPreference(
        pad_token_id=0, max_length=max_length, pad_to_multiple_of=multiple
    )
    sampled = np.random.default_rng(3).permutation(50)
    rows = [
        {"prompt_ids": [1], "chosen_ids": [1] * (c - 1), "rejected_ids": [1] * (r - 1)}
        for c, r in zip(chosen.tolist(), rejected.tolist(), strict=True)
    ]
    batches = [collate([rows[i] for i in sampled[at : at + 4]]) for at in range(0, 50, 4)]
    longer = np.maximum(chosen, rejected)
    mine = shapes_of_pass(
        dataclasses.replace(plain(*longer.tolist()), chosen=chosen, rejected=rejected),
        batch=4,
        max_length=max_length,
        packing="none",
        padding_free=False,
        pad_to_multiple_of=multiple,
        seed=3,
    )
    shapes = [tuple(batch["input_ids"].shape) for batch in batches]
    assert shapes == list(zip(mine.tensor_rows.tolist(), mine.width.tolist(), strict=True))
    assert [int((b["input_ids"] != 0).sum()) for b in batches] == mine.useful_tokens.tolist()


def test_rows_are_grouped_by_length_as_transformers_groups_them() -> None:
    from transformers.trainer_pt_utils import get_length_grouped_indices

    tokens = lengths_of("skewed")
    mine = shapes_of_pass(
        plain(*tokens.tolist()),
        batch=4,
        max_length=None,
        packing="none",
        padding_free=False,
        pad_to_multiple_of=None,
        group_by_length=True,
        accumulation=2,
        seed=0,
    )
    order = get_length_grouped_indices(tokens.tolist(), 8)
    theirs = [max(tokens[i] for i in order[at : at + 4]) for at in range(0, len(order), 4)]
    assert theirs[0] == mine.width[0]
    assert abs(sum(theirs) / int(mine.width.sum()) - 1) < 0.02
