"""Checks that documents flattened into one row cannot see each other (DESIGN.md 5.7).

Runs TRL's own collator and the model that is about to be measured on two short documents, changes
the first, and looks whether anything predicted in the second moves.
"""

from __future__ import annotations

from typing import Any

#: Tokens of the two documents: long enough for any attention pattern, too short to cost anything.
_FIRST, _SECOND = 12, 16
#: Logits that move by more than this share of their spread are seen to depend on the other
#: document. Masked attention adds exact zeros, so anything above rounding is a leak.
_TOLERANCE = 1e-4


def documents_mix(trainer: Any, *, packed: bool) -> bool:
    """Return whether changing one document changes what is predicted in the next.

    Args:
        trainer: a constructed TRL trainer whose collator flattens.
        packed: whether rows carry several documents (packing) or the batch does.
    """
    import torch

    model = trainer.model
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    device = next(model.parameters()).device
    tokens = [(7 * i + 3) % vocabulary for i in range(_FIRST + _SECOND)]
    changed = [(t + 1 + i) % vocabulary if i < _FIRST else t for i, t in enumerate(tokens)]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), trainer.compute_loss_context_manager():
            seen = [
                model(**_batch(trainer, ids, packed, device), use_cache=False).logits[0, _FIRST:]
                for ids in (tokens, changed)
            ]
    finally:
        model.train(was_training)
    moved = (seen[0].float() - seen[1].float()).abs().max()
    spread = seen[0].float().std()
    return bool(moved > _TOLERANCE * spread)


def _batch(trainer: Any, ids: list[int], packed: bool, device: Any) -> dict[str, Any]:
    import torch

    if packed:
        rows = [{"input_ids": ids, "labels": ids, "seq_lengths": [_FIRST, _SECOND]}]
    else:
        rows = [{"input_ids": part, "labels": part} for part in (ids[:_FIRST], ids[_FIRST:])]
    batch = trainer.data_collator(rows)
    return {
        k: v.to(device) if isinstance(v, torch.Tensor) else v
        for k, v in batch.items()
        if k != "labels"
    }
