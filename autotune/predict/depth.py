"""Shallow copies of a model, for traces that are extended to its full depth.

A model whose layers repeat is alike at every depth but for how often they do. Says how often that
is and writes configs with fewer layers; the arithmetic is in ``extend``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

#: What tells a layer's place and not its kind.
_PLACE = ("layer_idx", "layer_index", "training")


@dataclass(frozen=True)
class Depth:
    """Say how a model's layers repeat.

    Args:
        layers: how many there are.
        period: after how many the pattern repeats; None when it does not.
    """

    layers: int
    period: int | None

    @property
    def shallow(self) -> tuple[int, int, int] | None:
        """Layers of two copies to extend from and of a third to check with; None: not worth it."""
        if self.period is None or self.layers <= 5 * self.period:
            return None
        return 2 * self.period, 3 * self.period, 4 * self.period


@lru_cache(maxsize=32)
def depth_of(config_text: str) -> Depth:
    """Return how the layers of a model repeat.

    Args:
        config_text: its ``config.json``.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    stored = json.loads(config_text)
    layers = stored.get("num_hidden_layers")
    if not isinstance(layers, int):
        return Depth(0, None)
    config = AutoConfig.for_model(**stored)
    with torch.device("meta"):
        model = AutoModel.from_config(config, dtype=torch.bfloat16)
    kinds = [_kind(layer) for layer in layers_of(model)]
    for period in range(1, len(kinds) // 2 + 1):
        if all(kinds[at] == kinds[at % period] for at in range(len(kinds))):
            return Depth(layers, period)
    return Depth(layers, None)


def layers_of(model: Any) -> list[Any]:
    """Return a model's decoder layers; none where they cannot be told.

    Args:
        model: a transformers model, with or without adapters.
    """
    from torch.nn import ModuleList

    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [m for m in model.modules() if isinstance(m, ModuleList) and len(m) == count]
    return list(lists[0]) if lists else []


def _kind(layer: Any) -> Any:
    """Return everything that two equal layers have in common."""
    modules = [
        (name, type(module).__name__, _settings(module)) for name, module in layer.named_modules()
    ]
    return modules, [(name, tuple(p.shape)) for name, p in layer.named_parameters()]


def _settings(module: Any) -> list[tuple[str, Any]]:
    return sorted(
        (name, value)
        for name, value in vars(module).items()
        if name not in _PLACE and isinstance(value, int | float | str | bool | None)
    )


def shallow_copy(config_text: str, layers: int, folder: Path) -> Path:
    """Write a model folder with fewer layers and return it.

    Args:
        config_text: the model's ``config.json``.
        layers: how many it shall have.
        folder: where to; made if missing.
    """
    stored = json.loads(config_text)
    count = stored["num_hidden_layers"]
    cut = {
        name: value[:layers] if isinstance(value, list) and len(value) == count else value
        for name, value in stored.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**cut, "num_hidden_layers": layers})
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder
