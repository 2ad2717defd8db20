"""Reads published training measurements as requests to trace; copies none of them.

They lie beside the checkout (``AUTOTUNE_PUBLISHED``, else ``../shared/published``). Taken are rows
of one GPU of the catalogue whose every setting autotune can say in TRL's options: full, LoRA, DoRA
and 4-bit training with plain kernels. Nothing is fitted to them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput
from autotune.core.job import Trainer
from autotune.predict.devices.catalogue import Spec
from autotune.predict.devices.lookup import find_device
from autotune.predict.request import Documents, TraceRequest

FILE = Path(
    os.environ.get(
        "AUTOTUNE_PUBLISHED",
        Path(__file__).resolve().parents[3] / "shared" / "published" / "memory_open.jsonl",
    )
)
#: What the tables call TRL's options.
_METHODS = ("full", "lora", "rslora", "dora", "qlora")
_QUANTS = ("none", "bnb-nf4")


@dataclass(frozen=True)
class Published:
    """One row.

    Args:
        id: its name in the table.
        group: source, GPU and model: rows whose speed can be compared.
        spec: the GPU.
        settings: what sets it apart inside the group; equal ones cannot be ordered.
        request: its micro-step.
        micro_steps: of one update.
        tokens: of one update.
        tokens_per_s: what was measured.
        fixed_length: whether every row is known to be as long as stated.
    """

    id: str
    group: str
    spec: Spec
    settings: str
    request: TraceRequest
    micro_steps: int
    tokens: int
    tokens_per_s: float
    fixed_length: bool


def read_published(folder: Path) -> tuple[list[Published], Counter[str]]:
    """Return the rows that can be predicted, and why the others with a speed cannot.

    Args:
        folder: where model configs are written.
    """
    found, left_out = [], Counter[str]()
    for line in FILE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] != "e2e" or row["status"] != "ok" or not row.get("tokens_per_s"):
            continue
        reason = _against(row)
        if reason:
            left_out[reason] += 1
            continue
        found.append(_published(row, folder))
    return found, left_out


def _against(row: dict[str, Any]) -> str:
    if row.get("n_gpus") != 1:
        return "several GPUs"
    try:
        find_device(row["gpu"])
    except BadInput:
        return "a GPU that is not named or not in the catalogue"
    if not row.get("arch") or not row.get("seq_len"):
        return "no shape of the model or of the rows"
    if row["method"] not in _METHODS or row.get("quant") not in _QUANTS:
        return "a method TRL's options do not name"
    if row.get("sharding") != "none":
        return "DeepSpeed"
    if row.get("kernels") not in (None, "none"):
        return "kernels TRL does not have"
    if "experts" in json.dumps(row["arch"]) or "gelu 2-matrix" in str(row["arch"].get("mlp")):
        return "an architecture that is no plain decoder"
    return ""


def _published(row: dict[str, Any], folder: Path) -> Published:
    batch, length = int(row["micro_batch"]), int(row["seq_len"])
    steps = int(row.get("grad_accum") or 1)
    options = _options(row)
    settings = {
        "options": options,
        "batch": batch,
        "length": length,
        "steps": steps,
    }
    return Published(
        id=row["id"],
        group=f"{row['source']}, {row['gpu']}, {row['model']}",
        spec=find_device(row["gpu"]),
        settings=json.dumps(settings, sort_keys=True),
        request=TraceRequest(
            trainer=Trainer.SFT,
            model_dir=str(_model(row, folder)),
            options=options,
            rows=(Documents(tokens=(length,)),) * batch,
            accumulates=steps > 1,
            target="cuda",
        ),
        micro_steps=steps,
        tokens=batch * length * steps,
        tokens_per_s=float(row["tokens_per_s"]),
        fixed_length=bool(row.get("settings_complete")),
    )


def _options(row: dict[str, Any]) -> dict[str, Any]:
    amp = "amp" in str(row.get("compute")) or "autocast" in str(row.get("compute"))
    checkpointed = str(row.get("grad_ckpt") or "none").lower() not in ("none", "false")
    options: dict[str, Any] = {
        "bf16": amp,
        "dtype": "bfloat16",
        "gradient_checkpointing": checkpointed,
        "max_length": None,
        "optim": "adamw_torch",
    }
    if row["method"] != "full":
        options |= {"use_peft": True, "lora_r": int(row.get("lora_r") or 16)}
        targets = row.get("lora_targets")
        if targets:
            options["lora_target_modules"] = _targets(targets)
        if row.get("extra_trainable"):
            options["lora_modules_to_save"] = ["embed_tokens", "lm_head"]
        options["use_dora"] = row["method"] == "dora"
        options["use_rslora"] = row["method"] == "rslora"
    if row.get("quant") == "bnb-nf4":
        options["load_in_4bit"] = True
        options["bnb_4bit_quant_type"] = "nf4"
    return options


def _targets(names: list[str]) -> list[str]:
    """Return the linear layers of a Llama-shaped model that a table's names stand for."""
    own = {
        "c_attn": ["q_proj", "k_proj", "v_proj"],
        "c_proj": ["o_proj", "down_proj"],
        "w1": ["gate_proj"],
        "w2": ["up_proj"],
        "mlp": ["gate_proj", "up_proj", "down_proj"],
    }
    every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    found: list[str] = []
    for name in names:
        found += own.get(name, [name] if name in every else every)
    return list(dict.fromkeys(found))


def _model(row: dict[str, Any], folder: Path) -> Path:
    """Write a decoder of the row's shape and return its folder."""
    arch = row["arch"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 1 << 17,
        "hidden_size": arch["hidden"],
        "intermediate_size": arch["intermediate"],
        "num_hidden_layers": arch["layers"],
        "num_attention_heads": arch["heads"],
        "num_key_value_heads": arch["kv_heads"],
        "vocab_size": arch["vocab"],
        "tie_word_embeddings": arch["tied_embeddings"],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if arch.get("head_dim"):
        config["head_dim"] = arch["head_dim"]
    home = folder / row["model"].replace("/", "--")
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return home
