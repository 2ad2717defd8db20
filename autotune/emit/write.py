"""Write the emitted files of a result into its folder, each as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.core.result import Result
from autotune.emit.table import EMITTERS

#: What every run leaves in its folder.
WRITTEN = ("trl-yaml", "python", "env")


def write_emitted(result: Result, out_dir: Path, names: tuple[str, ...] = WRITTEN) -> list[Path]:
    """Write the files to train with; nothing is written unless all of them can be rendered.

    Args:
        result: a result with a best trial.
        out_dir: an existing folder.
        names: formats of `EMITTERS` to write.

    Raises:
        NothingFits: the result has no best trial.
        NotBuiltYet: this version does not emit for the job's trainer.
    """
    texts = {out_dir / EMITTERS[n].file_name: EMITTERS[n].render(result) for n in names}
    for file, text in texts.items():
        write_whole(file, text)
    return list(texts)


def remove_emitted(out_dir: Path, names: tuple[str, ...] = WRITTEN) -> None:
    """Remove the files to train with; arguments as for `write_emitted`."""
    for name in names:
        (out_dir / EMITTERS[name].file_name).unlink(missing_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, never a part."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
