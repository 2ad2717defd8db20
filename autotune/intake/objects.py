"""Gives Python objects (a config, a data set, a table) a place on disk where a child reads them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput


@contextmanager
def as_paths(
    model: Any, dataset: Any, tokenizer: Any = None
) -> Iterator[tuple[str | None, str | None, str]]:
    """Yield names of the model and the data set that another process can read.

    The third name is the folder objects were written to; what still lies there afterwards is
    removed.

    Args:
        model: hub id, path, transformers config, or None.
        dataset: hub id, path, ``datasets.Dataset``, ``pandas.DataFrame``, list of rows, or None.
        tokenizer: tokenizer object or path, needed with a config object that names none.

    Raises:
        BadInput: an object is of another kind, or a config comes without a tokenizer.
    """
    folder = Path(tempfile.mkdtemp(prefix="autotune-input-"))
    try:
        yield _model(model, tokenizer, folder), _dataset(dataset, folder), str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _model(model: Any, tokenizer: Any, folder: Path) -> str | None:
    if model is None or isinstance(model, str | os.PathLike):
        return None if model is None else os.fspath(model)
    from transformers import AutoTokenizer, PreTrainedConfig

    if not isinstance(model, PreTrainedConfig):
        raise BadInput(
            f"model is a {type(model).__name__}, expected a hub id, a path or a config.",
            "Pass model.config to tune a model you hold in memory.",
        )
    named = tokenizer if tokenizer is not None else model.name_or_path
    if not named:
        raise BadInput("a config object names no tokenizer.", "Pass tokenizer=... beside it.")
    target = folder / "model"
    model.save_pretrained(target)
    held = AutoTokenizer.from_pretrained(named) if isinstance(named, str | os.PathLike) else named
    held.save_pretrained(target)
    return str(target)


def _dataset(dataset: Any, folder: Path) -> str | None:
    if dataset is None or isinstance(dataset, str | os.PathLike):
        return None if dataset is None else os.fspath(dataset)
    import datasets
    import pandas as pd

    if isinstance(dataset, pd.DataFrame):
        dataset = datasets.Dataset.from_pandas(dataset, preserve_index=False)
    elif isinstance(dataset, list):
        strange = next((row for row in dataset if not isinstance(row, dict)), None)
        if strange is not None or not dataset:
            found = "is empty" if not dataset else f"holds a {type(strange).__name__}"
            raise BadInput(f"the list of rows {found}, expected dictionaries by column.")
        dataset = datasets.Dataset.from_list(dataset)
    if isinstance(dataset, datasets.DatasetDict):
        raise BadInput(
            f"dataset is a DatasetDict with the splits {', '.join(dataset)}.",
            "Pass one split, such as dataset['train'].",
        )
    if not isinstance(dataset, datasets.Dataset):
        raise BadInput(
            f"dataset is a {type(dataset).__name__}, expected a hub id, a path or a Dataset."
        )
    target = folder / "rows.parquet"
    dataset.to_parquet(target)
    return str(target)
