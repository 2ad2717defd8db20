"""Whether tokenizer and adapters fit the model they are named with; reads names and sizes only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.core.errors import BadInput
from autotune.training.anatomy import Anatomy
from autotune.training.targets import check_targets

_REMEDY = (
    "Use the tokenizer that belongs to the model, or resize its embedding "
    "(model.resize_token_embeddings) and save it."
)


def check_fitting(anatomy: Anatomy, tokenizer: Any, options: Mapping[str, Any]) -> list[str]:
    """Return remarks on what fits only in part.

    Args:
        anatomy: the model.
        tokenizer: named with it.
        options: the user's options with their final types.

    Raises:
        BadInput: padding would look up a token the embedding does not have, or no module has a
            name adapters are asked for.
    """
    return [*_tokenizer(anatomy.embedding, tokenizer, options), *check_targets(options, anatomy)]


def _tokenizer(embedding: int, tokenizer: Any, options: Mapping[str, Any]) -> list[str]:
    """Compare a tokenizer with the embedding; ids of the rows are compared when they are read."""
    if options.get("chat_template_path"):
        return []  # TRL resizes the embedding to the template's tokens
    tokens = getattr(tokenizer, "tokenizer", tokenizer)
    if len(tokens) <= embedding:
        return []
    pad = options.get("pad_token") or tokens.pad_token or options.get("eos_token")
    pad = pad or tokens.eos_token
    number = None if pad is None else tokens.convert_tokens_to_ids(pad)
    beyond = f"the tokenizer has {len(tokens)} tokens and the model's embedding {embedding}"
    if isinstance(number, int) and number >= embedding:
        raise BadInput(
            f"{beyond}, and the pad token {pad!r} has the id {number}: padding fails.",
            f"Set pad_token to a token of a lower id. {_REMEDY}",
        )
    return [
        f"{beyond[0].upper()}{beyond[1:]}: a text with one of the other "
        f"{len(tokens) - embedding} fails; none of the rows has one. {_REMEDY}"
    ]
