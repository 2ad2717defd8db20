"""Checks that documents flattened into one row cannot see each other (DESIGN.md 5.7).

Runs TRL's own collator and the model that is about to be measured on two short documents, and looks
whether what is predicted in the second has a gradient in the first. Masked attention makes that
gradient exactly zero in any precision; comparing two forward passes would not do, since a product
over other tokens may round differently (experts in bf16).
"""

from __future__ import annotations

from typing import Any

#: Tokens of the two documents: long enough for any attention pattern, too short to cost anything.
_FIRST, _SECOND = 12, 16
#: A gradient in the first document larger than this share of the second's is a leak.
_TOLERANCE = 1e-6


def documents_mix(trainer: Any, *, packed: bool) -> bool:
    """Return whether one document has a part in what is predicted in the next.

    Args:
        trainer: a constructed TRL trainer whose collator flattens.
        packed: whether rows carry several documents (packing) or the batch does.
    """
    import torch

    model = trainer.model
    embeddings = model.get_input_embeddings()
    vocabulary = int(embeddings.weight.shape[0])
    tokens = [(7 * i + 3) % vocabulary for i in range(_FIRST + _SECOND)]
    batch = _batch(trainer, tokens, packed, next(model.parameters()).device)
    read: list[Any] = []

    def keep(_: Any, __: Any, output: Any) -> Any:
        read.append(output.detach().requires_grad_())
        return read[-1]

    was_training = model.training
    model.eval()
    hook = embeddings.register_forward_hook(keep)
    try:
        # `train()` wraps the model in accelerate's autocast; without it kernels that take half
        # precision only would be given fp32 (transformers 5.24: the trainer's own is empty).
        with trainer.accelerator.autocast(), trainer.compute_loss_context_manager():
            logits = model(**batch, use_cache=False).logits
    finally:
        hook.remove()
        model.train(was_training)
    (gradient,) = torch.autograd.grad(logits[0, _FIRST:].float().square().sum(), read[0])
    reach = gradient[0].float().norm(dim=-1)
    return bool(reach[:_FIRST].max() > _TOLERANCE * reach[_FIRST:].max())


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
