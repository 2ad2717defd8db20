"""What a job of the audit is made of: the models and rows there are, and the choices it varies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME, knobs_of
from autotune.knobs.facts import Facts
from autotune.knobs.knob import Knob
from tests.audit.rows import (
    conversations,
    few_texts,
    preferences,
    prompts_and_completions,
    texts,
    thumbs,
    token_rows,
)

#: Knobs that are not varied in whole jobs, and why.
LEFT_OUT: Mapping[str, str] = {
    "torch_compile": "compiling every shape takes minutes; no shipped space tries it",
}
#: 4-bit kernels for CPUs take whole blocks of 64 weights.
_BLOCKS = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 32}

#: By name, what a tiny model's config.json says beside the demo's; one layer each.
MODELS: Mapping[str, Mapping[str, Any]] = {
    "qwen3": _BLOCKS,
    "qwen3, 24 positions": {**_BLOCKS, "max_position_embeddings": 24},
    "gpt2, 24 positions": {
        **{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
        **{"hidden_size": 64, "max_position_embeddings": 24},
    },
    "gpt_neo, without sdpa": {
        **{"model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"]},
        **{"hidden_size": 64, "attention_types": [[["global"], 1]]},
    },
    "olmo, unknown to PEFT": {
        **_BLOCKS,
        **{"model_type": "olmo", "architectures": ["OlmoForCausalLM"]},
    },
    "mixtral, two experts": {
        **_BLOCKS,
        **{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]},
        **{"num_local_experts": 2, "num_experts_per_tok": 1},
    },
}
#: By name, rows as a user writes them.
ROWS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "texts": texts,
    "three texts": few_texts,
    "prompts and completions": prompts_and_completions,
    "conversations": conversations,
    "tokens": lambda: token_rows(*(6 + 3 * (i % 9) for i in range(24))),
    "24 tokens each": lambda: token_rows(*[24] * 12),
    "preferences": preferences,
    "thumbs": thumbs,
}


@dataclass(frozen=True)
class AuditJob:
    """One job.

    Args:
        name: for the report.
        trainer: which trainer.
        options: the user's TRL options beside a batch of 4.
        model: of `MODELS`.
        rows: of `ROWS`.
        varies: the knobs that are varied, with the choices that are tried; an empty tuple takes
            `choices_of`. None varies every knob but `LEFT_OUT`.
        breaks: rules that are autotune's own elsewhere, but here TRL breaks without them.
        scales: gradients are scaled as on a GPU, which accelerate leaves out on a CPU.
    """

    name: str
    trainer: Trainer
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = "qwen3"
    rows: str = "texts"
    varies: Mapping[str, tuple[Value, ...]] | None = None
    breaks: tuple[str, ...] = ()
    scales: bool = False

    def choices(self, facts: Facts) -> dict[str, tuple[Value, ...]]:
        """Return the choices of the knobs that are varied.

        Args:
            facts: what open-ended knobs take their choices from.
        """
        if self.varies is None:
            wanted = [k for k in knobs_of(self.trainer) if k.name not in LEFT_OUT]
            return {k.name: choices_of(k, facts) for k in wanted}
        return {
            name: choices or choices_of(BY_NAME[name], facts)
            for name, choices in self.varies.items()
        }


def choices_of(knob: Knob, facts: Facts) -> tuple[Value, ...]:
    """Return the choices of a knob that are tried: of numbers, none and the two ends.

    Args:
        knob: a row of the knob table.
        facts: what open-ended knobs take their choices from.
    """
    if knob.choices is not None:
        numbers = [c for c in knob.choices if type(c) is int and c > 0]
        inner = set(numbers) - {min(numbers, default=0), max(numbers, default=0)}
        return tuple(c for c in knob.choices if type(c) is not int or c not in inner)
    longest = facts.lengths.longest
    open_ended: dict[str, tuple[Value, ...]] = {
        "per_device_train_batch_size": (1, 2, 4),
        "max_length": (longest * 3 // 4, longest, longest + 7, None),
    }
    return open_ended[knob.name]
