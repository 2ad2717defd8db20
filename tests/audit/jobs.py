"""The jobs the audit tries, literally: one whole job of every trainer, and small ones for the rest.

A small job is there for rules that read the user's options, rows or model; it varies only the
knobs those rules are about. A rule without a job that exercises it is noticed (see reach.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.candidate import Value
from autotune.core.job import Trainer
from tests.audit.job import AuditJob

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
        {**_FP32, "max_length": 64, "dataset_streaming": True, "max_steps": 8},
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
        "sft, three rows, the last batch left out",
        Trainer.SFT,
        {**_FP32, "per_device_train_batch_size": 2, "dataloader_drop_last": True},
        rows="three texts",
        varies={"per_device_train_batch_size": (1, 3, 4)},
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
        "dpo, adapters of the attention",
        Trainer.DPO,
        {**_FP32, "use_peft": True},
        rows="preferences",
        varies={"precompute_ref_log_probs": (), "quantization": ("none", "4bit")},
        breaks=("evaluated_weights_train",),
    ),
    AuditJob(
        "dpo, stream",
        Trainer.DPO,
        {**_FP32, "dataset_streaming": True, "max_steps": 8},
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
    AuditJob(
        "dpo, every other layer",
        Trainer.DPO,
        {**_FP32, "gradient_checkpointing_kwargs": {"every_n_layers": 2}},
        rows="preferences",
        varies={
            "gradient_checkpointing": ("none", "full", "reentrant"),
            "precompute_ref_log_probs": (),
        },
    ),
    AuditJob(
        "reward, checkpoints in host memory",
        Trainer.REWARD,
        {**_FP32, "gradient_checkpointing_kwargs": {"offload": True}},
        rows="preferences",
        varies={"gradient_checkpointing": ("none", "full"), "per_device_train_batch_size": (2, 4)},
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
        {**_FP32, "dataset_streaming": True, "max_steps": 8},
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
        {**_FP32, "dataset_streaming": True, "max_steps": 8},
        rows="thumbs",
        varies={
            "per_device_train_batch_size": (2, 4),
            "max_length": (),
            "precompute_ref_log_probs": (),
        },
    ),
    AuditJob("kto, bf16 autocast", Trainer.KTO, _BF16, rows="thumbs", varies=_WEIGHTS),
)
