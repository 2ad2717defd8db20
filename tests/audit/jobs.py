"""The jobs the audit tries, literally: one whole job of every trainer, and small ones for the rest.

A small job is there for rules that read the user's options, rows or model; it varies only the
knobs those rules are about. A rule without a job that exercises it is noticed (see reach.py).
"""

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


_FP32 = {"per_device_train_batch_size": 4, "bf16": False}
_BF16 = {"per_device_train_batch_size": 4, "bf16": True}
_FP16 = {"per_device_train_batch_size": 4, "bf16": False, "fp16": True}
_BATCHES: Mapping[str, tuple[Value, ...]] = {
    "per_device_train_batch_size": (),
    "max_length": (),
    "packing": (),
    "padding_free": (),
    "pad_to_multiple_of": (),
}
_WEIGHTS: Mapping[str, tuple[Value, ...]] = {
    "dtype": (),
    "quantization": (),
    "peft": ("none", "lora", "dora"),
    "gradient_checkpointing": (),
}

#: The first of each trainer varies everything.
JOBS: tuple[AuditJob, ...] = (
    AuditJob("sft", Trainer.SFT, _FP32),
    AuditJob("dpo", Trainer.DPO, _FP32, rows="preferences"),
    AuditJob("reward", Trainer.REWARD, _FP32, rows="preferences"),
    AuditJob("kto", Trainer.KTO, _FP32, rows="thumbs"),
    AuditJob(
        "sft, prompts and completions",
        Trainer.SFT,
        _FP32,
        rows="prompts and completions",
        varies={"max_length": (), "packing": (), "padding_free": (), "loss_type": ()},
    ),
    AuditJob(
        "sft, conversations, assistant only",
        Trainer.SFT,
        {**_FP32, "assistant_only_loss": True},
        rows="conversations",
        varies={"max_length": (), "packing": (), "padding_free": ()},
    ),
    AuditJob(
        "sft, rows of tokens, skip_prepare_dataset",
        Trainer.SFT,
        {**_FP32, "max_length": 64, "dataset_kwargs": {"skip_prepare_dataset": True}},
        rows="tokens",
        varies={"packing": (), "padding_free": ()},
    ),
    AuditJob(
        "sft, stream",
        Trainer.SFT,
        {**_FP32, "max_length": 64, "dataset_streaming": True},
        varies={
            "packing": (),
            "padding_free": (),
            "train_sampling_strategy": (),
            "dataloader_num_workers": (),
        },
    ),
    AuditJob(
        "sft, 24 tokens each",
        Trainer.SFT,
        _FP32,
        rows="24 tokens each",
        varies={
            "packing": ("none", "wrapped"),
            "max_length": (12, 16, 24),
            "pad_to_multiple_of": (None, 8, 16, 32),
        },
    ),
    AuditJob(
        "sft, three rows",
        Trainer.SFT,
        {**_FP32, "per_device_train_batch_size": 2},
        rows="three texts",
        varies={"per_device_train_batch_size": (1, 3, 4), "packing": ("none", "bfd")},
    ),
    AuditJob(
        "sft, learned positions",
        Trainer.SFT,
        _FP32,
        model="gpt2, 24 positions",
        varies={
            "max_length": (16, 24, 32),
            "packing": ("none", "wrapped"),
            "pad_to_multiple_of": (None, 16),
        },
        breaks=("length_within_positions",),
    ),
    AuditJob(
        "sft, rotary positions",
        Trainer.SFT,
        _FP32,
        model="qwen3, 24 positions",
        varies={
            "max_length": (16, 24, 32),
            "packing": ("none", "wrapped"),
            "pad_to_multiple_of": (None, 16),
        },
    ),
    AuditJob("sft, bf16 autocast", Trainer.SFT, _BF16, varies=_WEIGHTS),
    AuditJob("sft, fp16 autocast", Trainer.SFT, _FP16, varies=_WEIGHTS, scales=True),
    AuditJob(
        "sft, fp16 and modules to save",
        Trainer.SFT,
        {**_FP16, "lora_modules_to_save": ["embed_tokens"]},
        varies={"dtype": (), "peft": ("none", "lora")},
        scales=True,
    ),
    AuditJob(
        "sft, experts, adapters without dropout",
        Trainer.SFT,
        {**_FP32, "lora_dropout": 0.0},
        model="mixtral, two experts",
        varies={
            "gradient_checkpointing": ("none", "full"),
            "peft": (),
            "lora_target_modules": (),
            "quantization": ("none", "4bit"),
        },
    ),
    AuditJob(
        "sft, experts",
        Trainer.SFT,
        _FP32,
        model="mixtral, two experts",
        varies={
            "per_device_train_batch_size": (),
            "gradient_checkpointing": (),
            "padding_free": (),
            "peft": ("none", "lora"),
            "lora_target_modules": (),
        },
    ),
    AuditJob(
        "sft, no adapter targets",
        Trainer.SFT,
        _FP32,
        model="olmo, unknown to PEFT",
        varies={"peft": (), "lora_target_modules": ()},
    ),
    AuditJob(
        "sft, no sdpa",
        Trainer.SFT,
        _FP32,
        model="gpt_neo, without sdpa",
        varies={
            "attn_implementation": (None, "eager", "sdpa"),
            "gradient_checkpointing": (),
        },
    ),
    AuditJob(
        "sft, the user's own selective",
        Trainer.SFT,
        {**_FP32, "gradient_checkpointing_kwargs": {"selective": True}},
        varies={
            "gradient_checkpointing": (),
            "attn_implementation": (None, "eager"),
            "peft": ("none", "lora"),
        },
    ),
    AuditJob(
        "sft, padding_free from the start",
        Trainer.SFT,
        {**_FP32, "padding_free": True, "max_length": None},
        varies={
            "max_length": (),
            "packing": ("none", "bfd"),
            "padding_free": (),
            "per_device_train_batch_size": (),
        },
    ),
    AuditJob(
        "sft, the user's own keywords",
        Trainer.SFT,
        {
            **_FP32,
            "gradient_checkpointing_kwargs": {"use_reentrant": True},
            "model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": "eager"},
        },
        varies={
            "gradient_checkpointing": (),
            "dtype": ("float32", "bfloat16"),
            "attn_implementation": (None, "eager", "sdpa"),
            "peft": ("none", "lora"),
        },
    ),
    AuditJob(
        "dpo, the reference follows",
        Trainer.DPO,
        {**_FP32, "sync_ref_model": True, "ref_model_sync_steps": 1},
        rows="preferences",
        varies={"precompute_ref_log_probs": (), "peft": ("none", "lora"), "padding_free": ()},
    ),
    AuditJob(
        "dpo, stream",
        Trainer.DPO,
        {**_FP32, "dataset_streaming": True},
        rows="preferences",
        varies={
            "precompute_ref_log_probs": (),
            "padding_free": (),
            "train_sampling_strategy": ("random", "sequential"),
        },
    ),
    AuditJob(
        "dpo, a loss over the batch",
        Trainer.DPO,
        {**_FP32, "loss_type": ["bco_pair", "sft"]},
        rows="preferences",
        varies={
            "per_device_train_batch_size": (),
            "precompute_ref_log_probs": (),
            "padding_free": (),
        },
    ),
    AuditJob("dpo, bf16 autocast", Trainer.DPO, _BF16, rows="preferences", varies=_WEIGHTS),
    AuditJob("reward, bf16 autocast", Trainer.REWARD, _BF16, rows="preferences", varies=_WEIGHTS),
    AuditJob(
        "kto, a loss without the KL term",
        Trainer.KTO,
        {**_FP32, "loss_type": "apo_zero_unpaired"},
        rows="thumbs",
        varies={
            "per_device_train_batch_size": (),
            "train_sampling_strategy": (),
            "precompute_ref_log_probs": (),
        },
    ),
    AuditJob(
        "reward, stream",
        Trainer.REWARD,
        {**_FP32, "dataset_streaming": True},
        rows="preferences",
        varies={
            "per_device_train_batch_size": (1, 3, 4),
            "max_length": (15, 30),  # three pairs have 15 tokens or less
            "pad_to_multiple_of": (),
        },
    ),
    AuditJob(
        "kto, stream",
        Trainer.KTO,
        {**_FP32, "dataset_streaming": True},
        rows="thumbs",
        varies={
            "per_device_train_batch_size": (2, 4),
            "max_length": (),
            "precompute_ref_log_probs": (),
        },
    ),
    AuditJob("kto, bf16 autocast", Trainer.KTO, _BF16, rows="thumbs", varies=_WEIGHTS),
)
