"""What the user wants trained, and what the search may do about it.

A job is a document: it crosses into the measuring process and is stored in the result. It holds
what was asked for, not what was found out (that is the profile and the environment).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer


class Frozen(BaseModel):
    """Be immutable and refuse unknown fields, so that a misread document fails loudly."""

    model_config = ConfigDict(frozen=True, extra="forbid")


#: Words without an order; stored in one all the same: documents are compared, and a set's own order
#: is another in every process.
Words: TypeAlias = Annotated[frozenset[str], PlainSerializer(sorted, list[str], when_used="json")]


class Trainer(StrEnum):
    """The TRL trainers autotune knows by name."""

    SFT = "sft"
    DPO = "dpo"
    REWARD = "reward"
    KTO = "kto"
    GRPO = "grpo"
    RLOO = "rloo"
    ONLINE_DPO = "online-dpo"


#: Trainers this version can probe; the others are refused by name.
PROBED_TRAINERS = (Trainer.SFT, Trainer.DPO, Trainer.REWARD, Trainer.KTO)

Objective = Literal["throughput", "memory", "length"]

#: Words of ``--allow``: what may change beyond the order and the cut of the rows.
ALLOWABLE = (
    "peft",
    "quantization",
    "dtype",
    "optimizer",
    "loss",
    "attention",
    "batch-split",
    "mixing",
    "split",
    "longer",
    "effective-batch",
)


class DatasetSource(Frozen):
    """Name where rows come from.

    Args:
        path: a hub id, a file (JSON, JSONL, Parquet, CSV, Arrow), or a folder written by
            ``Dataset.save_to_disk``.
        config: the hub data set's configuration, if it has several.
        train_split: the split that is trained on.
        test_split: the split evaluation uses, read only when the config evaluates.
        blocks: the ``datasets:`` block of a TRL YAML, when that is where the rows come from.
    """

    path: str
    config: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    blocks: tuple[dict[str, Any], ...] | None = None


class Budget(Frozen):
    """Say how much memory the job may use.

    Args:
        total_bytes: what this job may use of the device, context included.
        headroom_ratio: share of it kept free, 0..1.
        explicit: whether the user named it (else: the device's memory minus what others hold).
    """

    total_bytes: int = Field(gt=0)
    headroom_ratio: float = Field(ge=0.0, lt=1.0)
    explicit: bool

    @property
    def usable_bytes(self) -> int:
        """Bytes a candidate may reach: the budget without its headroom."""
        return int(self.total_bytes * (1.0 - self.headroom_ratio))


class Job(Frozen):
    """Hold one request to autotune.

    Args:
        trainer: which TRL trainer.
        model: a hub id, or a local directory with at least ``config.json`` and a tokenizer.
        dataset: where the rows come from.
        options: TRL options the user set (YAML file, then ``--set``), upstream spelling, without
            model, data set and ``env``.
        env: environment variables from the YAML's ``env:`` block.
        config_text: the user's YAML as they wrote it, so that it can be given back with comments.
        objective: ``throughput`` (fastest pass), ``memory`` (smallest peak), ``length``.
        min_retention_ratio: least share of reference label tokens a candidate must keep, 0..1.
        effective_batch_sequences: sequences per optimizer update; None keeps the config's own.
        allow: classes of change beyond neutral and data the user agreed to.
        weights: ``random`` builds the model from its config, ``real`` loads its weights.
        seed: seed of every random choice.
    """

    trainer: Trainer
    model: str
    dataset: DatasetSource
    options: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    config_text: str | None = None
    objective: Objective = "throughput"
    min_retention_ratio: float = Field(default=0.99, ge=0.0, le=1.0)
    effective_batch_sequences: int | None = Field(default=None, gt=0)
    allow: Words = frozenset()
    weights: Literal["random", "real"] = "random"
    seed: int = 0
