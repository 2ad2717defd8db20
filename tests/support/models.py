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
