"""The job that runs when no model and no data set are given: a tiny decoder and its chat rows.

Everything here was made by this project and travels in the wheel, so that the first run needs
neither a hub nor an accelerator. This module only says where the files are and what the budget
is; ``model.py`` builds the model directory, ``make.py`` made the rows and the tokenizer.
"""

from __future__ import annotations

from pathlib import Path

DEMO_DIR = Path(__file__).resolve().parent

#: Memory the demo job may use, in bytes.
MEMORY_BYTES = 600 * 2**20


def rows_path() -> Path:
    """Return the chat rows, one ``{"messages": [...]}`` a line."""
    return DEMO_DIR / "rows.jsonl"


def config_path() -> Path:
    """Return the model's transformers ``config.json``."""
    return DEMO_DIR / "config.json"


def base_config_path() -> Path:
    """Return the base config, in the format ``trl sft --config`` reads."""
    return DEMO_DIR / "demo.yaml"
