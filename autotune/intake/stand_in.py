"""Stands in for what a bare ``config.json`` lacks: a tokenizer and, with it, the lengths of rows.

Puts the embedded demo's tokenizer beside a copy of the config, and rows that are all as long as
``max_length``: the most a micro-batch can be. It reads nothing of the data set.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

from autotune import demo
from autotune.core.errors import BadInput
from autotune.emit.read_config import read_user_config
from autotune.intake.request import Request

#: Any of these is a tokenizer transformers can load.
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
#: Rows assumed, for times per pass.
_ROWS = 1000
#: TRL's own default ``max_length`` (trl 1.16, ``SFTConfig``).
_LENGTH = 1024


def stand_in_folder(request: Request, folder: Path) -> tuple[Request, tuple[str, ...]]:
    """Return the request with a model folder that has a tokenizer, and what was assumed.

    Args:
        request: its model may be a ``config.json`` or a folder with nothing else.
        folder: where copies are written, if any are needed.

    Raises:
        BadInput: a tokenizer is needed to know the lengths of this trainer's rows.
    """
    bare = _bare_config(request)
    if bare is None:
        return request, ()
    if request.trainer != "sft":
        raise BadInput(
            f"there is no tokenizer beside {bare}, and {request.trainer} rows cannot be assumed.",
            "Put the model's tokenizer files beside it.",
        )
    options = dict(request.set_options)
    if request.config is not None:
        options = {**read_user_config(Path(request.config)).options, **options}
    length = options.get("max_length") or _LENGTH
    if not isinstance(length, int) or length < 1:
        raise BadInput(f"max_length is {length!r}, expected a whole number above zero.")
    folder.mkdir(parents=True)
    shutil.copyfile(bare, folder / "config.json")
    for file in demo.DEMO_DIR.glob("tokenizer*"):
        shutil.copyfile(file, folder / file.name)
    rows = folder / "rows.jsonl"
    row = json.dumps({"input_ids": [5] * length})
    rows.write_text(f"{row}\n" * _ROWS, encoding="utf-8")
    note = (
        f"There is no tokenizer beside {bare.name}, so the lengths of your rows are not known: all "
        f"of {_ROWS} rows are taken as {length} tokens long, which is the worst case for memory."
    )
    return dataclasses.replace(request, model=str(folder), dataset=str(rows)), (note,)


def _bare_config(request: Request) -> Path | None:
    """Return the ``config.json`` of a local model without a tokenizer; None for every other."""
    named = request.model
    if named is None and request.config is not None:
        named = read_user_config(Path(request.config)).model
    if named is None:
        return None
    path = Path(named).expanduser()
    file = path if path.name == "config.json" else path / "config.json"
    if not file.is_file() or any((file.parent / name).exists() for name in _TOKENIZERS):
        return None
    return file
