"""Every kind of local file rows may lie in is emitted as a block that TRL's own loader reads."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from autotune.core.job import DatasetSource
from autotune.dataset.builders import BUILDERS
from autotune.dataset.load import load_rows
from autotune.emit.location import locate_rows
from autotune.emit.settings import best_trial
from tests.support.results import gpu_result, with_job

pytestmark = pytest.mark.integration

ROWS = [{"text": "one"}, {"text": "two"}]
TABLE = "text\none\ntwo\n"
LINES = '{"text": "one"}\n{"text": "two"}\n'


def parquet(path: Path) -> None:
    datasets.Dataset.from_list(ROWS).to_parquet(str(path))


def arrow(path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(path.parent / "saved"))
    next((path.parent / "saved").glob("*.arrow")).rename(path)


WRITERS: dict[str, Callable[[Path], object]] = {
    ".json": lambda path: path.write_text('[{"text": "one"}, {"text": "two"}]'),
    ".jsonl": lambda path: path.write_text(LINES),
    ".ndjson": lambda path: path.write_text(LINES),
    ".parquet": parquet,
    ".csv": lambda path: path.write_text(TABLE),
    ".tsv": lambda path: path.write_text("text\tn\none\t1\ntwo\t2\n"),
    ".arrow": arrow,
    ".txt": lambda path: path.write_text("one\ntwo\n"),
    ".jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES.encode())),
    ".tsv.gz": lambda path: path.write_bytes(gzip.compress(TABLE.encode())),
}


def test_every_ending_that_is_loaded_is_tried_here() -> None:
    assert set(BUILDERS) <= set(WRITERS)


@pytest.mark.parametrize("ending", WRITERS)
def test_trl_loads_the_rows_from_the_emitted_block(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import DatasetMixtureConfig, get_dataset
    from trl.scripts.utils import DatasetConfig

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "with space [1] \u00fc"
    folder.mkdir()
    file = folder / f"rows (1){ending}"
    WRITERS[ending](file)
    source = DatasetSource(path=str(file))
    result = with_job(gpu_result(), dataset=source)
    blocks = locate_rows(result, best_trial(result), evaluates=False).options["datasets"]
    mixture = DatasetMixtureConfig(datasets=[DatasetConfig(**block) for block in blocks])
    loaded = list(get_dataset(mixture)["train"])
    assert list(load_rows(source, "train", cache_dir=tmp_path / "own")) == loaded
    assert ["one", "two"] == [row["text"] for row in loaded]
