"""A result, written as the files people train with."""

from __future__ import annotations

from autotune.emit.config import build_config, cpu_overrides, trainer_kwargs
from autotune.emit.table import EMITTERS, Emitter
from autotune.emit.write import WRITTEN, write_emitted, write_whole

__all__ = [
    "EMITTERS",
    "WRITTEN",
    "Emitter",
    "build_config",
    "cpu_overrides",
    "trainer_kwargs",
    "write_emitted",
    "write_whole",
]
