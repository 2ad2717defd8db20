"""Counted remarks on what the rows hold and nobody reads; what stops a run is in ``preflight``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.job import Trainer
from autotune.core.profile import Notice
from autotune.dataset.scan import Column


def silenced_calls(calls: tuple[int, int] | None, *, rendered: bool) -> tuple[Notice, ...]:
    """Return a remark when the chat template leaves out the rows' tool calls.

    Args:
        calls: messages with ``tool_calls`` and the first row that has one, None without any.
        rendered: whether the chat template renders them.
    """
    if calls is None or rendered:
        return ()
    count, first = calls
    return (
        Notice(
            code="silenced-calls",
            count=count,
            message=f"{count} messages have tool_calls, first in row {first + 1}, but the chat "
            "template does not render them: nothing of them is trained. (Rows count from 1.)",
        ),
    )


def unread_prompt(layout: str, unread: list[str]) -> tuple[Notice, ...]:
    """Return a remark when answers stand without a prompt but beside columns nobody reads.

    Args:
        layout: name of the layout.
        unread: columns of text or messages that belong to no part of it.
    """
    if layout != "preference with implicit prompt" or not unread:
        return ()
    names = ", ".join(map(repr, unread))
    return (
        Notice(
            code="unread-prompt",
            count=len(unread),
            message=f"chosen and rejected stand without a prompt column, and {names} is not read: "
            "if it holds the prompts, rename it to 'prompt'.",
        ),
    )


def unread_system(unread: list[str]) -> tuple[Notice, ...]:
    """Return a remark when system texts stand beside rows that are no conversations.

    Args:
        unread: columns of text or messages that belong to no part of the layout.
    """
    if "system" not in unread:
        return ()
    return (
        Notice(
            code="unread-system",
            count=1,
            message="column 'system' is not read: write its texts into the prompts, or the rows "
            "as messages, of which they become the first.",
        ),
    )


def unread_label(trainer: Trainer, columns: Mapping[str, Column]) -> tuple[Notice, ...]:
    """Return a remark when rows are rated and the trainer takes all of them for good.

    Args:
        trainer: who trains on them.
        columns: what each column holds.
    """
    label = columns.get("label")
    if trainer is not Trainer.SFT or label is None or label.kind != "flag":
        return ()
    return (
        Notice(
            code="unread-label",
            count=sum(seen.count for seen in label.kinds.values()),
            message="column 'label' (true or false) is not read: sft trains on rows rated false as "
            "well. --trainer kto learns from both ratings; else leave those rows out.",
        ),
    )


def unread_mask(columns: Mapping[str, Column], options: Mapping[str, Any]) -> tuple[Notice, ...]:
    """Return a remark when TRL drops a mask of the prompt, so that the prompt is trained on.

    Args:
        columns: what each column of tokenised rows holds.
        options: TRL options the user set.
    """
    mask = columns.get("completion_mask")
    masked = "labels" in columns or options.get("completion_only_loss")
    if mask is None or "input_ids" not in columns or masked:
        return ()
    return (
        Notice(
            code="unread-mask",
            count=mask.scanned,
            message="column 'completion_mask' is not read, so every token is trained on: TRL "
            "reads it with completion_only_loss=true only.",
        ),
    )
