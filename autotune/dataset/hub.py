"""Loads a data set by its hub id, from the network or, without one, from the user's hub cache."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput, first_line
from autotune.dataset.splits import pick, take

if TYPE_CHECKING:
    from datasets import Dataset

_HUB_TIMEOUT_S = 10.0


def load_hub(name: str, config: str | None, split: str, first: int | None = None) -> Dataset:
    """Load a hub data set, or the copy the hub cache has of it when there is no network.

    Args:
        name: hub id.
        config: its configuration, if it has several.
        split: split expression.
        first: take at most this many rows of it as a stream; None loads all.
    """
    import datasets
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    reached = True
    unreachable: tuple[type[Exception], ...] = (
        OfflineModeIsEnabled,
        OSError,
        *_transport_errors(),
    )
    try:
        huggingface_hub.HfApi().dataset_info(name, timeout=_HUB_TIMEOUT_S)
    except (HfHubHTTPError, HFValidationError) as error:
        raise BadInput(
            f"data set {name!r} is neither a local path nor a data set on the hub: "
            f"{first_line(error)}"
        ) from error
    except unreachable:
        reached = False
    try:
        with nullcontext() if reached else _offline():
            loaded = datasets.load_dataset(name, config, streaming=first is not None)
            if first is not None:
                return take(loaded, split, name, first)
    except (ValueError, OSError, datasets.exceptions.DatasetsError) as error:
        if reached:
            raise BadInput(f"data set {name!r} cannot be loaded: {first_line(error)}") from error
        raise BadInput(
            f"data set {name!r} is not a local path, is not in the hub cache, "
            "and the hub cannot be reached from here.",
            "Give a local file, or a folder written by Dataset.save_to_disk.",
        ) from error
    return pick(loaded, split, name)


def _transport_errors() -> tuple[type[Exception], ...]:
    """Return the base error of every HTTP library huggingface_hub may be built on."""
    found: list[type[Exception]] = []
    for module in ("httpx2", "httpx"):
        if importlib.util.find_spec(module) is not None:
            found.append(importlib.import_module(module).HTTPError)
    return tuple(found)


@contextmanager
def _offline() -> Iterator[None]:
    """Keep the hub libraries from asking the network, which costs them 20 s of retries."""
    import datasets.config
    import huggingface_hub.constants

    homes: list[Any] = [huggingface_hub.constants, datasets.config]
    before = [home.HF_HUB_OFFLINE for home in homes]
    try:
        for home in homes:
            home.HF_HUB_OFFLINE = True
        yield
    finally:
        for home, value in zip(homes, before, strict=True):
            home.HF_HUB_OFFLINE = value
