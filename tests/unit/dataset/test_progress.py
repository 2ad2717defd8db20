"""How far preparation has come, told by the data set library and passed on by a file."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from autotune.dataset.progress import bars_told
from autotune.probe.progress import PROGRESS_FILE, ProgressFile, and_progress, read_progress


@pytest.mark.parametrize("workers", [None, 2])
def test_rows_of_a_map_are_told_as_they_are_done(workers: int | None) -> None:
    rows = datasets.Dataset.from_dict({"n": list(range(4000))})
    told: list[tuple[str, int, int]] = []
    with bars_told(lambda *step: told.append(step), "tokenise"):
        rows.map(lambda row: {"n": row["n"] + 1}, num_proc=workers, keep_in_memory=True)
    assert ("tokenise", 0, 4000) == told[0]
    assert ("tokenise", 4000, 4000) == told[-1]
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_the_library_draws_its_own_bars_again_afterwards() -> None:
    import datasets.arrow_dataset as library

    before = library.hf_tqdm
    with pytest.raises(KeyError), bars_told(lambda *_: None, "x"):
        raise KeyError
    assert before is library.hf_tqdm


def test_progress_crosses_by_a_file_and_is_told_once(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path)
    told: list[tuple[str, int, int]] = []
    ticks: list[float] = []
    tick = and_progress(tmp_path, ticks.append, lambda *step: told.append(step))
    tick(0.1)
    file.tell("tokenise", 5, 10)
    tick(0.2)
    tick(0.3)
    file.tell("tokenise", 6, 10)  # too soon after the other
    file.tell("measure", 0, 10)
    tick(0.4)
    assert [("tokenise", 5, 10), ("measure", 0, 10)] == told
    assert [0.1, 0.2, 0.3, 0.4] == ticks
    file.close()
    assert read_progress(tmp_path) is None


def test_a_damaged_file_is_no_progress(tmp_path: Path) -> None:
    (tmp_path / PROGRESS_FILE).write_text("{", encoding="utf-8")
    assert read_progress(tmp_path) is None
