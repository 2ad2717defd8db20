"""The job that runs when no model and no data set are given: a tiny decoder and its chat rows.

Everything here was made by this project and travels in the wheel, so that the first run needs
neither a hub nor an accelerator. This module only says where the files are and what the budget
is; ``model.py`` builds the model directory, ``make.py`` made the rows and the tokenizer.
"""

from __future__ import annotations

from pathlib import Path

DEMO_DIR = Path(__file__).resolve().parent

#: Memory the demo job may use, in bytes above what the process holds at its start. Measured with
#: RLIMIT_DATA: the base config needs a cap of 770 MiB, padding-free at batch 4 without
#: checkpointing 580, the same at batch 8 (which is faster) 1100. The cap is 95 % of this budget.
MEMORY_BYTES = 940 * 2**20


def rows_path() -> Path:
    """Return the chat rows, one ``{"messages": [...]}`` a line."""
    return DEMO_DIR / "rows.jsonl"


def base_config_path() -> Path:
    """Return the base config, in the format ``trl sft --config`` reads."""
    return DEMO_DIR / "demo.yaml"
