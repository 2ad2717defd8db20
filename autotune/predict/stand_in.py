"""A tokenizer for models of which only the config is at hand.

The trainer asks it for its special tokens and pads with them; it reads no text.
"""

from __future__ import annotations

from typing import Any

#: Chat turns without any words, for trainers that insist on a template.
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tokenizer() -> Any:
    """Return a tokenizer with padding and end tokens and four words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<unk>")),
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        chat_template=_TEMPLATE,
    )
