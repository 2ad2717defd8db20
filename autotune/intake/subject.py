"""Which model and which rows a request is about: named ones, or the embedded demo's.

Half a job is a question to the user and not the demo: a model without rows, or rows without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import demo
from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource
from autotune.emit.read_config import UserConfig
from autotune.intake.request import Request

#: What names the embedded demo's model or rows; a local path of this name goes before it.
DEMO = "demo"
_WITH_CONFIG = "the embedded demo's are trained with your config"


@dataclass(frozen=True)
class Subject:
    """What a job is about.

    Args:
        model: hub id or absolute path; None is the embedded demo's.
        source: where the rows come from, local files by their absolute path.
        demo_rows: the rows are the embedded demo's.
        notices: what to say of that.
    """

    model: str | None
    source: DatasetSource
    demo_rows: bool
    notices: tuple[str, ...]

    @property
    def demo_model(self) -> bool:
        """Whether the model is the embedded demo's."""
        return self.model is None


def subject_of(request: Request, config: UserConfig) -> Subject:
    """Return the model and the rows of a request.

    Args:
        request: what the user asks for.
        config: their YAML; the request goes before it.

    Raises:
        BadInput: one of the two is named and the other is not, or a name is none.
    """
    model = request.model or config.model
    source = config.dataset
    if request.dataset is not None:
        source = DatasetSource(path=request.dataset)
    _refuse_addresses(source)
    model = None if model is None else _absolute(model)
    source = source and source.model_copy(update={"path": _absolute(source.path)})
    notices: tuple[str, ...] = ()
    if model is None and source is None:
        model = DEMO
        source = DatasetSource(path=DEMO)
        what = "this is the embedded demo job" if request.config is None else _WITH_CONFIG
        notices = (f"No model and no data set were named: {what}.",)
    if model is None or source is None:
        raise _question(model, source)
    demo_rows = source.blocks is None and source.path == DEMO
    return Subject(
        model=None if model == DEMO else model,
        source=DatasetSource(path=str(demo.rows_path())) if demo_rows else source,
        demo_rows=demo_rows,
        notices=notices,
    )


def _question(model: str | None, source: DatasetSource | None) -> BadInput:
    if source is not None:
        return BadInput(
            f"--model is missing: rows are named ({source.path}) and no model to train on them.",
            "Add --model with a folder or a hub id, or --model demo for the embedded demo model.",
        )
    return BadInput(
        f"--dataset is missing: a model is named ({model}) and no rows to train it on.",
        "Add --dataset with a file, a folder or a hub id, or --dataset demo for the embedded demo "
        "rows.",
    )


def _refuse_addresses(source: DatasetSource | None) -> None:
    """Stop at rows that are not here.

    Raises:
        BadInput: an address is named where rows are.
    """
    if source is None:
        return
    for text in _texts([source.path, *(source.blocks or ())]):
        if "://" in text:
            raise BadInput(
                f"data set {text} is an address, expected a file, a folder or a hub data set.",
                "Download it first and give the file.",
            )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a tree of lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))


def _absolute(name: str) -> str:
    """Return a local path as an absolute one; other names as they are.

    Raises:
        BadInput: the system refuses it as a name (too long: it may be the rows themselves).
    """
    path = Path(name).expanduser()
    try:
        if path.name == "config.json" and path.is_file():
            path = path.parent  # the model is the folder
        return str(path.resolve()) if path.exists() else name
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{name[:60]!r} is neither a path nor a hub id: {error.args[-1]}.",
            "Give the name of a file, a folder or a hub repository.",
        ) from error
