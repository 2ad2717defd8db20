"""Opens the tokenizer as TRL would and checks what TRL needs of it: template, pad and end tokens.

Chooses nothing silently: a token that stands in for another is said, a missing template stops.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput

_SUFFIXES = (".json", ".model", ".txt", ".jinja", ".tiktoken", ".py")
_NOT_TOKENIZER = (
    "index.json",
    "generation_config.json",
    "trainer_state.json",
    "adapter_config.json",
)


@dataclass(frozen=True)
class TokenizerFacts:
    """Say what preparation needs to know of a tokenizer.

    Args:
        pad_token: the token used for padding and where it comes from, in words.
        pad_id: its id.
        pad_is_eos: whether it is the end token as well.
        template: the chat template in use, None without.
        render_calls: whether the template renders ``tool_calls``.
        render_parts: whether it renders content given as a list of text parts.
    """

    pad_token: str
    pad_id: int
    pad_is_eos: bool
    template: str | None
    render_calls: bool
    render_parts: bool


def open_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Return the tokenizer, or the processor where the folder has one, without the network.

    Raises:
        BadInput: the folder holds none that can be opened.
    """
    from transformers import AutoProcessor, AutoTokenizer

    named = [folder / "preprocessor_config.json", folder / "processor_config.json"]
    opener = AutoProcessor if any(path.is_file() for path in named) else AutoTokenizer
    try:
        return opener.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
        raise BadInput(
            f"{folder} holds no tokenizer that can be opened: {str(error).splitlines()[0]}",
            "Give a model directory with tokenizer.json or its kin.",
        ) from error


def check_tokenizer(
    processing: Any, folder: Path, options: Mapping[str, Any], *, chat: bool, plain: bool
) -> TokenizerFacts:
    """Return what preparation needs to know, or stop before anything is tokenised.

    Args:
        processing: tokenizer or processor.
        folder: where it comes from, for messages.
        options: TRL options; ``chat_template_path``, ``eos_token`` and ``pad_token`` count here.
        chat: whether rows are conversations, which need a chat template.
        plain: whether rows are text, which TRL ends with the end token.

    Raises:
        BadInput: no template for conversations, neither pad nor end token, or a named token that
            the vocabulary lacks.
    """
    tokenizer = getattr(processing, "tokenizer", processing)
    vocabulary = tokenizer.get_vocab()
    for name in ("eos_token", "pad_token"):
        token = options.get(name)
        if token is not None and token not in vocabulary:
            raise BadInput(f"{name} is {token!r}, which the tokenizer at {folder} does not have.")
    eos = options.get("eos_token") or tokenizer.eos_token
    own_pad = options.get("pad_token") or tokenizer.pad_token
    if own_pad is None and eos is None:
        raise BadInput(
            f"the tokenizer at {folder} has neither pad nor eos token; set one.",
            "Set eos_token, or pad_token, to a token of its vocabulary.",
        )
    if eos is None and plain:
        raise BadInput(
            f"the tokenizer at {folder} has no eos token, which TRL ends every text row with.",
            "Set eos_token to a token of its vocabulary.",
        )
    pad = own_pad if own_pad is not None else eos
    if pad not in vocabulary:
        raise BadInput(
            f"the pad token {pad!r} of the tokenizer at {folder} is not in its vocabulary.",
            "Set pad_token to a token that is.",
        )
    template = template_of(processing, options)
    if chat and template is None:
        raise BadInput(
            f"the data set is conversational, but the tokenizer at {folder} has no chat template.",
            "Set chat_template_path to a .jinja file or to a model that has one, "
            "or give a data set with a text column.",
        )
    named = template if "chat_template_path" in options else None
    source = (
        "set by pad_token"
        if options.get("pad_token")
        else "the tokenizer's pad token"
        if own_pad is not None
        else "the end-of-sequence token: the tokenizer has no pad token"
    )
    return TokenizerFacts(
        pad_token=f"{pad!r} ({source})",
        pad_id=int(vocabulary[pad]),
        pad_is_eos=pad == eos,
        template=template,
        render_calls=template is not None and _renders_calls(processing, named),
        render_parts=template is not None and _renders_parts(processing, named),
    )


def template_of(processing: Any, options: Mapping[str, Any]) -> str | None:
    """Return the chat template TRL will use: that of ``chat_template_path``, else the own one.

    Raises:
        BadInput: ``chat_template_path`` is neither a template file nor a folder with a tokenizer.
    """
    path = options.get("chat_template_path")
    if path is None:
        template = processing.chat_template
        return json.dumps(template) if isinstance(template, dict) else template
    file = Path(path)
    if file.is_file() and file.suffix in (".jinja", ".j2"):
        return file.read_text(encoding="utf-8")
    if not file.is_dir():
        raise BadInput(
            f"chat_template_path is {str(path)!r}, which is neither a .jinja file nor a local "
            "folder with a tokenizer."
        )
    template = open_tokenizer(file).chat_template
    if template is None:
        raise BadInput(f"chat_template_path is {str(path)!r}, whose tokenizer has no template.")
    return str(template)


def hash_of(folder: Path) -> str:
    """Return a hash of every file that can change what the tokenizer makes of a text."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES and not path.name.endswith(_NOT_TOKENIZER):
            digest.update(os.fsencode(path.name))
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _renders_calls(processing: Any, template: str | None) -> bool:
    """Return whether a tool call survives the template: many drop it without a word."""
    function = {"name": "probe_name", "arguments": {"probe_key": "probe_value"}}
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "question"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "function": function}],
        },
        {"role": "tool", "content": "result"},
        {"role": "assistant", "content": "answer"},
    ]
    text = _rendered(processing, said, template)
    return all(word in text for word in ("probe_name", "probe_value"))


def _renders_parts(processing: Any, template: str | None) -> bool:
    """Return whether text parts survive the template as text, not as the list they are."""
    parts = [{"type": "text", "text": word} for word in ("probe_one", "probe_two")]
    said: list[dict[str, Any]] = [{"role": "user", "content": parts}]
    said += [{"role": "assistant", "content": parts[:1]}]
    text = _rendered(processing, said, template)
    as_list = any(sign in text for sign in ("'text':", '"text":'))
    return text.count("probe_one") == 2 and "probe_two" in text and not as_list


def _rendered(processing: Any, said: list[dict[str, Any]], template: str | None) -> str:
    """Return a conversation as text, "" when the template refuses it."""
    from jinja2 import TemplateError

    try:
        return str(processing.apply_chat_template(said, tokenize=False, chat_template=template))
    except (TemplateError, TypeError, ValueError, KeyError):
        return ""
