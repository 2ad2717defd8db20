"""Writes a small byte-level tokenizer with a chat template that renders tool calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{%- if tools %}<|im_start|>tools\n"
    "{%- for tool in tools %}{{ tool | tojson }}\n{%- endfor %}<|im_end|>\n{%- endif %}"
    "{%- for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<call>{{ call.function | tojson }}</call>"
    "{%- endfor %}<|im_end|>\n"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
#: A template that drops tool calls without a word.
DEAF_TEMPLATE = (
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n{%- endif %}"
)
_TEXTS = [
    "the quick brown fox jumps over the lazy dog and then it sleeps in the warm sun",
    "user assistant system tool what is the weather like in the city today",
    '{"name": "get_weather", "arguments": {"city": "Paris"}}',
]


def write_tokenizer(
    folder: Path, *, template: str | None = TEMPLATE, pad: bool = True, eos: bool = True
) -> Path:
    """Write the tokenizer's files and return their folder; it has 400 ids or fewer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    named: dict[str, Any] = {}
    if pad:
        named["pad_token"] = "<pad>"
    if eos:
        named["eos_token"] = "</s>"
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
    fast.chat_template = template
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(str(folder))
    return folder


def tiny_config(*, vocabulary: int = 400, positions: int = 2048) -> Any:
    """Return a Llama config of toy size with this vocabulary."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=positions,
    )
