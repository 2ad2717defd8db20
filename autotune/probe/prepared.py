"""A job that is resolved and whose rows are prepared: what every probe of it starts from."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from autotune.core.environment import Device, Environment
from autotune.core.job import Frozen, Words
from autotune.core.positions import Positions
from autotune.core.profile import DatasetProfile


class ModelFacts(Frozen):
    """What the model's config says, needed before any probe.

    Args:
        model_dir: local directory probes build the model from.
        name: how the user named it.
        model_type: transformers' ``model_type``.
        positions: how long a sequence it takes, None when unlimited.
        vocabulary: rows of the input embedding.
        moe: whether it routes tokens to experts.
        has_weights: whether real weights are at hand locally.
        traits: what sets it apart for the rules (``autotune.knobs.facts.Facts``).
        dtype: precision its weights are stored in.
    """

    model_dir: str
    name: str
    model_type: str
    positions: Positions | None
    vocabulary: int
    moe: bool
    has_weights: bool
    traits: Words = frozenset()


class Prepared(Frozen):
    """The answer to `PrepareSpec`.

    Args:
        environment: machine and versions.
        device: the device probes will use.
        options: the user's options with the types TRL gives them.
        defaults: what TRL uses for options the user left out and autotune needs to know.
        model: facts of the model's config.
        profile: facts of the rows.
        eval_profile: facts of the rows evaluation uses; None when the config does not evaluate,
            equal to ``profile`` when they are held out of those it trains on.
        notices: what was resolved on the user's behalf, one sentence each.
        lacking: why each capability this machine does not have is not there, by name.
        unfit_adapters: why PEFT refuses adapters on the model, by form; tried where adapters may
            be searched.
    """

    environment: Environment
    device: Device
    options: dict[str, Any]
    defaults: dict[str, Any]
    model: ModelFacts
    profile: DatasetProfile
    eval_profile: DatasetProfile | None = None
    notices: tuple[str, ...] = ()
    lacking: dict[str, str] = Field(default_factory=dict)
    unfit_adapters: dict[str, str] = Field(default_factory=dict)
