"""Write the demo's model directory: config, random weights, tokenizer.

The weights mean nothing; only their shapes matter to a tuner. Building them runs torch kernels,
so a process that forks probes must not call this itself.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from autotune.core.errors import BadInput
from autotune.demo import DEMO_DIR

WEIGHTS_SEED = 0
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
# Names what a finished directory was made from, so that a later call can tell its own work.
STAMP_FILE = "autotune-demo.sha256"


def materialise_model(target_dir: Path) -> Path:
    """Write a complete Hugging Face model directory that ``trl sft`` can train from.

    Safe to repeat and to race: the directory appears whole or not at all, and one that this demo
    made before is used as it is.

    Args:
        target_dir: where the directory shall be; its parents are made.

    Returns:
        ``target_dir``, absolute.

    Raises:
        BadInput: ``target_dir`` exists and this version of the demo did not make it.
    """
    target = target_dir.expanduser().absolute()
    stamp = _stamp()
    if _is_ours(target, stamp):
        return target
    if target.exists():
        raise _foreign(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as made:
        building = Path(made) / "model"
        building.mkdir()
        _write_weights(building)
        for name in TOKENIZER_FILES:
            shutil.copyfile(DEMO_DIR / name, building / name)
        (building / STAMP_FILE).write_text(stamp + "\n", encoding="utf-8")
        try:
            building.rename(target)
        except OSError:
            if not _is_ours(target, stamp):
                raise _foreign(target) from None
    return target


def _write_weights(building: Path) -> None:
    """Save the config and fp32 weights drawn from a fixed seed, without touching torch's own."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(DEMO_DIR)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(WEIGHTS_SEED)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(building)


def _stamp() -> str:
    """Return a digest of everything the directory is made from."""
    digest = hashlib.sha256(f"weights seed {WEIGHTS_SEED}\n".encode())
    for name in ("config.json", *TOKENIZER_FILES):
        digest.update((DEMO_DIR / name).read_bytes())
    return digest.hexdigest()


def _foreign(target: Path) -> BadInput:
    """Say that something else is where the model shall be."""
    return BadInput(
        f"{target} exists and is not this version's demo model.",
        "Remove it or name another directory.",
    )


def _is_ours(target: Path, stamp: str) -> bool:
    """Tell whether the directory was made from these very files."""
    path = target / STAMP_FILE
    return path.is_file() and path.read_text(encoding="utf-8").strip() == stamp
