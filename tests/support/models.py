"""Model folders for tests: tiny decoders with random weights and the demo's tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from autotune.demo import DEMO_DIR


def tiny_model(folder: Path, **config: object) -> Path:
    """Write a model folder without weights: a one-layer decoder that trains in milliseconds.

    Args:
        folder: where to.
        config: values that replace the demo's in ``config.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = json.loads((DEMO_DIR / "config.json").read_text(encoding="utf-8"))
    small = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 64}
    small |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    if "layer_types" in stored:
        small["layer_types"] = stored["layer_types"][:1]
    (folder / "config.json").write_text(json.dumps({**stored, **small, **config}), "utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEMO_DIR / file, folder / file)
    template = DEMO_DIR / "chat_template.jinja"
    if template.exists():
        shutil.copyfile(template, folder / template.name)
    return folder


def with_code(folder: Path, code: str, class_name: str) -> Path:
    """Give a model folder code of its own, as models with ``trust_remote_code`` have.

    Args:
        folder: of a model.
        code: of a module that defines the class.
        class_name: a subclass of the folder's causal language model.
    """
    (folder / "modeling_own.py").write_text(code, encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModelForCausalLM": f"modeling_own.{class_name}"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
