"""Candidates whose peaks are both traced and measured, by stratum; the same ones every time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.predict.request import Documents, Judged, Pair, Row
from tests.support.models import tiny_model

SFT, DPO, REWARD, KTO = Trainer.SFT, Trainer.DPO, Trainer.REWARD, Trainer.KTO
_LORA = {"use_peft": True}
_NF4 = {**_LORA, "load_in_4bit": True, "dtype": "bfloat16"}
_INT8 = {**_LORA, "load_in_8bit": True, "dtype": "bfloat16"}

#: What differs from the demo's config: the demo itself, larger ones, and kinds of layers.
MODELS: dict[str, dict[str, Any]] = {
    "demo": {
        "num_hidden_layers": 6,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 128,
    },
    "wide": {
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 8192,
        "tie_word_embeddings": False,
    },
    "deep": {
        "num_hidden_layers": 16,
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
    },
    "sliding": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "sliding_window": 64,
    },
    "experts": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_hidden_layers": 3,
        "hidden_size": 128,
        "intermediate_size": 256,
        "moe_intermediate_size": 96,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
    },
}


@dataclass(frozen=True)
class Case:
    """One candidate.

    Args:
        stratum: what it has in common with others.
        model: key of `MODELS`.
        trainer: which trainer.
        options: TRL options.
        rows: rows of its micro-batch, as the collator gets them.
    """

    stratum: str
    model: str
    trainer: Trainer
    options: dict[str, Any]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Stratum:
    """Candidates of one kind.

    Args:
        name: what they have in common.
        trainer: which trainer.
        fixed: options they share.
        drawn: further options and their choices.
        models: models they are drawn from.
        packed: whether rows are packed.
    """

    name: str
    trainer: Trainer
    fixed: dict[str, Any]
    drawn: dict[str, tuple[Any, ...]]
    models: tuple[str, ...] = ("demo", "wide", "deep")
    packed: bool = False


_COMMON: dict[str, tuple[Any, ...]] = {
    "gradient_checkpointing": (True, False),
    "bf16": (True, False),
    "dtype": (None, "bfloat16"),
}
STRATA = (
    Stratum("SFT, full", SFT, {}, {**_COMMON, "attn_implementation": ("sdpa", "eager")}),
    Stratum("SFT, padding-free", SFT, {"padding_free": True, "max_length": None}, _COMMON),
    Stratum("SFT, packed", SFT, {"packing": True}, _COMMON, packed=True),
    Stratum(
        "SFT, selective checkpointing",
        SFT,
        {"gradient_checkpointing_kwargs": {"selective": True}},
        {"bf16": (True, False), "dtype": (None, "bfloat16")},
    ),
    Stratum(
        "SFT, other optimizers",
        SFT,
        {},
        {**_COMMON, "optim": ("adamw_torch", "adafactor", "adamw_8bit", "sgd")},
    ),
    Stratum("SFT, sliding window and experts", SFT, {}, _COMMON, models=("sliding", "experts")),
    Stratum("SFT, LoRA", SFT, _LORA, {**_COMMON, "lora_r": (4, 32), "use_dora": (False, True)}),
    Stratum("SFT, 4-bit LoRA", SFT, _NF4, {"gradient_checkpointing": (True, False)}),
    Stratum("SFT, 8-bit LoRA", SFT, _INT8, {"gradient_checkpointing": (True, False)}),
    Stratum("DPO, full", DPO, {}, {**_COMMON, "precompute_ref_log_probs": (False, True)}),
    Stratum("DPO, LoRA", DPO, _LORA, _COMMON),
    Stratum("DPO, 4-bit LoRA", DPO, _NF4, {"gradient_checkpointing": (True, False)}),
    Stratum("Reward, full", REWARD, {}, _COMMON),
    Stratum("Reward, LoRA", REWARD, {**_LORA, "lora_task_type": "SEQ_CLS"}, _COMMON),
    Stratum("KTO, full", KTO, {}, {**_COMMON, "loss_type": ("kto", "apo_zero_unpaired")}),
    Stratum("KTO, LoRA", KTO, _LORA, _COMMON),
)


def cases(each: int, seed: int = 0) -> list[Case]:
    """Return candidates, the same for the same arguments.

    Args:
        each: how many of every stratum.
        seed: of the draw.
    """
    draw = random.Random(seed)
    return [_case(stratum, draw) for stratum in STRATA for _ in range(each)]


def _case(stratum: Stratum, draw: random.Random) -> Case:
    options = {**stratum.fixed, **{k: draw.choice(v) for k, v in stratum.drawn.items()}}
    batch = draw.choice((1, 2, 3, 4, 8))
    if stratum.trainer is KTO or stratum.fixed.get("padding_free"):
        batch = max(2, batch)
    width = draw.choice((48, 96, 160, 256, 384))
    options["per_device_train_batch_size"] = batch
    options["gradient_accumulation_steps"] = draw.choice((1, 2))
    if stratum.packed:
        options |= {"max_length": width, "packing_strategy": draw.choice(("bfd", "wrapped"))}
        documents = draw.choice((1, 2, 4))
        return _made(stratum, draw, options, [_packed(width, documents, options)] * batch)
    lengths = [width, *(draw.randint(16, width) for _ in range(batch - 1))]
    return _made(stratum, draw, options, [_ROW[stratum.trainer](n, draw) for n in lengths])


def _made(stratum: Stratum, draw: random.Random, options: dict[str, Any], rows: list[Row]) -> Case:
    return Case(stratum.name, draw.choice(stratum.models), stratum.trainer, options, tuple(rows))


def _packed(width: int, documents: int, options: dict[str, Any]) -> Row:
    # wrapped forgets where documents end
    kept = documents if options["packing_strategy"] == "bfd" else 1
    return Documents(tokens=(width // kept,) * kept)


def _sft(tokens: int, draw: random.Random) -> Row:
    return Documents(tokens=(tokens,), label_tokens=draw.randint(1, tokens - 1))


def _pair(tokens: int, draw: random.Random) -> Row:
    prompt = draw.randint(4, tokens - 8)
    return Pair(prompt=prompt, chosen=tokens - prompt, rejected=draw.randint(1, tokens - prompt))


def _sides(tokens: int, draw: random.Random) -> Row:
    return Pair(prompt=0, chosen=tokens, rejected=draw.randint(8, tokens))


def _judged(tokens: int, draw: random.Random) -> Row:
    prompt = draw.randint(4, tokens - 8)
    return Judged(prompt=prompt, completion=tokens - prompt, desirable=draw.random() < 0.5)


_ROW: dict[Trainer, Callable[[int, random.Random], Row]] = {
    SFT: _sft,
    DPO: _pair,
    REWARD: _sides,
    KTO: _judged,
}


def models(folder: Path) -> dict[str, Path]:
    """Write the folders of `MODELS`, without weights."""
    return {name: tiny_model(folder / name, **config) for name, config in MODELS.items()}
