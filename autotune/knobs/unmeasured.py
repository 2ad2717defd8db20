"""What of a user's config this version cannot measure, whatever a candidate chooses.

A literal table; read before the first probe. What TRL itself refuses is found by building it
(`autotune.training.constructs`), what some candidates can be trained with by the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Unmeasured:
    """Name one thing that is not measured.

    Args:
        present: whether a config asks for it.
        reason: one sentence.
        advice: what to do instead.
    """

    present: Callable[[Options], bool]
    reason: str
    advice: str


def _sharded(name: str) -> Unmeasured:
    return Unmeasured(
        lambda options: bool(options.get(name)),
        f"{name} divides the model over processes, and a probe is one process: it is not "
        "measured by this version.",
        "Leave it out to see what one process holds.",
    )


def _quantized_by_keyword(options: Options) -> bool:
    kwargs = options.get("model_init_kwargs")
    return isinstance(kwargs, Mapping) and bool(kwargs.get("quantization_config"))


UNMEASURED: tuple[Unmeasured, ...] = (
    _sharded("fsdp"),
    _sharded("deepspeed"),
    _sharded("parallelism_config"),
    Unmeasured(
        lambda options: options.get("truncation_mode") == "keep_end",
        "truncation_mode keep_end is not measured by this version (TRL has deprecated it).",
        "Use keep_start, or max_length null.",
    ),
    Unmeasured(
        lambda options: options.get("train_sampling_strategy") == "batch_rebalance",
        "train_sampling_strategy batch_rebalance fills micro-batches by their tokens, so that "
        "their rows differ in number: it is not measured by this version.",
        "Use random or group_by_length.",
    ),
    Unmeasured(
        _quantized_by_keyword,
        "model_init_kwargs.quantization_config is not measured by this version.",
        "Use load_in_4bit or load_in_8bit.",
    ),
)


def unmeasured(options: Options) -> Unmeasured | None:
    """Return the first thing a config asks for that is not measured, else None.

    Args:
        options: TRL options, as written or with their final types.
    """
    return next((entry for entry in UNMEASURED if entry.present(options)), None)
