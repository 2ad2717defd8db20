"""What a model is made of, found by building it without weights (torch's ``meta`` device).

Reads modules and shapes: whether positions are a table, how many tokens the embedding has, and
which layers adapters can be put on. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.job import Trainer
from autotune.core.positions import Positions


@dataclass(frozen=True)
class Anatomy:
    """A model without weights.

    Args:
        model: on torch's ``meta`` device.
        positions: how long a sequence it takes; None when unlimited.
        embedding: tokens its input embedding has.
    """

    model: Any
    positions: Positions | None
    embedding: int

    def layers(self) -> tuple[str, ...]:
        """Return the names of layers adapters can be put on, each once, in the model's order."""
        import torch
        from transformers.pytorch_utils import Conv1D

        kinds = (torch.nn.Linear, Conv1D, torch.nn.Embedding)
        modules = self.model.named_modules()
        names = (name.rpartition(".")[2] for name, module in modules if isinstance(module, kinds))
        return tuple(dict.fromkeys(names))


def anatomy_of(
    trainer: Trainer, model_dir: Path, kwargs: Mapping[str, Any], limit: Positions | None
) -> Anatomy | None:
    """Build a model without weights; None where its code cannot be built so.

    Args:
        trainer: which trainer it is for.
        model_dir: local directory with ``config.json``.
        kwargs: the loader's keywords that change the config, and ``trust_remote_code``.
        limit: the positions its config names.
    """
    from autotune.training.model import build_model

    how = {k: v for k, v in kwargs.items() if k not in ("attn_implementation", "dtype")}
    try:
        model = build_model(
            trainer, model_dir, weights="random", kwargs=how, quantization=None, device="meta"
        )
        embedding = model.get_input_embeddings()
    except Exception:  # noqa: BLE001  (code of models may raise anything; probes will say it)
        return None
    count = getattr(embedding, "num_embeddings", None) or model.config.get_text_config().vocab_size
    return Anatomy(model, limit and _seen(model, embedding, limit), int(count))


def _seen(model: Any, embedding: Any, limit: Positions) -> Positions:
    """Return the positions as the model's own tables have them."""
    if limit.field == "max_seq_len":
        return limit  # MPT makes its table of distances anew at every step, as long as this
    for module in model.modules():
        if module is embedding or hasattr(module, "make_weights"):
            continue  # fairseq's sinusoids grow
        before = getattr(module, "padding_idx", None)
        for rows in _tables(module):
            # OPT has two rows more than positions; RoBERTa's begin after the pad token's
            if limit.most <= rows <= limit.most + 2:
                most = limit.most if before is None else min(limit.most, rows - before - 1)
                return limit.model_copy(update={"most": most})
    return limit.model_copy(update={"fixed": False})


def _tables(module: Any) -> Iterator[int]:
    """Yield the rows of everything in a module that may be looked up by position."""
    import torch

    if isinstance(module, torch.nn.Embedding):
        yield module.num_embeddings
        return
    held = {**module._buffers, **{k: v for k, v in vars(module).items() if "pos" in k}}
    held |= {k: v for k, v in module._parameters.items() if "pos" in k}
    for tensor in held.values():
        if isinstance(tensor, torch.Tensor) and tensor.dim() > 1:
            yield from (n for n in tensor.shape[:-1] if n > 1)
