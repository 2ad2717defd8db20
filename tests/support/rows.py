"""Prepared rows and a tiny model on disk, for tests that run real measuring processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.core.job import Trainer
from tests.support.models import tiny_model

#: Case BC01: 29 rows of a short word, and a last row that nobody sees in the first steps.
LATE_LONG_ROW = (*[3] * 29, 1200)


def write_rows(folder: Path, tokens: Sequence[int]) -> Path:
    """Write rows of these lengths as the preparation leaves them; every token is trained."""
    import datasets

    ids = [[5 + (row + at) % 40 for at in range(count)] for row, count in enumerate(tokens)]
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"input_ids": ids, "labels": ids}).save_to_disk(str(folder))
    return folder


def write_job(folder: Path, tokens: Sequence[int]) -> tuple[str, str]:
    """Write a tiny model and rows of these lengths; return their folders."""
    model = tiny_model(folder / "model", max_position_embeddings=2048)
    return str(model), str(write_rows(folder / "rows", tokens))


def write_trainer_rows(folder: Path, trainer: Trainer, tokens: Sequence[int]) -> str:
    """Write rows of these lengths as a trainer's preparation leaves them; return their folder.

    A third of a row is its prompt; the rejected side of a pair is a token shorter.
    """
    import datasets

    if trainer is Trainer.SFT:
        return str(write_rows(folder, tokens))
    rows = [[5 + (row + at) % 40 for at in range(count)] for row, count in enumerate(tokens)]
    cuts = [max(1, len(row) // 3) for row in rows]
    prompts = [row[:cut] for row, cut in zip(rows, cuts, strict=True)]
    answers = [row[cut:] for row, cut in zip(rows, cuts, strict=True)]
    columns: dict[Trainer, dict[str, object]] = {
        Trainer.DPO: {
            "prompt_ids": prompts,
            "chosen_ids": answers,
            "rejected_ids": [answer[:-1] for answer in answers],
        },
        Trainer.REWARD: {"chosen_ids": rows, "rejected_ids": [row[:-1] for row in rows]},
        Trainer.KTO: {
            "prompt_ids": prompts,
            "completion_ids": answers,
            "label": [row % 2 == 0 for row in range(len(rows))],
        },
    }
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns[trainer]).save_to_disk(str(folder))
    return str(folder)
