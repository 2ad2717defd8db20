"""What pairs of answers tell: one answer twice, a prompt that is missing, one that is said twice.

TRL takes a prompt that has no column of its own to be what both answers begin with
(trl 1.16, ``data_utils.extract_prompt``; Reward needs none).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.dataset.layouts import Layout

#: Trainers that look for the prompt in the answers.
_EXTRACTING = (Trainer.DPO, Trainer.KTO)


def oddities(
    row: Mapping[str, Any], number: int, layout: Layout, trainer: Trainer
) -> Iterator[str]:
    """Yield what is to be remarked on one pair of answers.

    Args:
        row: the row's columns, as given.
        number: the row, counted from 0, for errors (which count from 1).
        layout: the layout of the rows.
        trainer: who trains on them.

    Raises:
        BadInput: no prompt can be found where the trainer needs one.
    """
    chosen, rejected = row["chosen"], row["rejected"]
    if chosen == rejected:
        yield "same-answers"
    if layout.name == "preference" and _begin_with(row["prompt"], chosen, rejected):
        yield "repeated-prompt"
    if layout.name != "preference with implicit prompt" or trainer not in _EXTRACTING:
        return
    for name in ("chosen", "rejected"):
        if not row[name]:
            raise BadInput(
                f"row {number + 1}: column {name!r} is empty and there is no prompt column: trl "
                f"{trainer.value} fails where it looks for the prompt in the answers.",
                "Add a column 'prompt', or remove that row.",
            )
    if chosen[0] == rejected[0]:
        return
    if not isinstance(chosen, str):
        raise BadInput(
            f"row {number + 1}: chosen and rejected begin with different messages and there is no "
            f"prompt column, so that trl {trainer.value} finds no prompt.",
            "Add a column 'prompt', or let both begin with the messages of the prompt.",
        )
    yield "no-prompt"


def _begin_with(prompt: Any, *answers: Any) -> bool:
    """Return whether all answers repeat the whole prompt before anything else."""
    return bool(prompt) and all(
        answer[: len(prompt)] == prompt and len(answer) > len(prompt) for answer in answers
    )
