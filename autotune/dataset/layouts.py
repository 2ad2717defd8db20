"""The layouts rows can have: one table, first match wins. A new layout is a row and a converter.

Says what the columns must hold and who trains on them; the search and its messages are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.job import Trainer
from autotune.dataset import convert
from autotune.dataset.convert import Converter
from autotune.dataset.scan import Column

SFT = frozenset({Trainer.SFT})
PAIRED = frozenset({Trainer.DPO, Trainer.REWARD, Trainer.KTO})
KTO = frozenset({Trainer.KTO})
ONLINE = frozenset({Trainer.GRPO, Trainer.RLOO, Trainer.ONLINE_DPO})

#: Stands for the column that ``dataset_text_field`` names.
TEXT_FIELD = "<text>"

_TEXT = frozenset({"text"})
_IDS = frozenset({"ids"})
_CHAT = frozenset({"messages", "turns"})
_ONE = frozenset({"messages", "turns", "message", "turn"})
_SIDE = _TEXT | _CHAT
_FLAG = frozenset({"flag", "number"})
#: What is inside an object is known to its layout's converter alone.
OBJECT = frozenset({"object"})


@dataclass(frozen=True)
class Layout:
    """Describe one layout.

    Args:
        name: how it is called.
        needs: kinds of value that each column of it may hold.
        trainers: who trains on such rows.
        read: converter into what TRL reads; rows TRL reads as they are do not go through it.
        converted: what it is converted to, in words; None when TRL reads it by itself.
        optional: columns that are read when they are there.
        unlike: columns whose presence means another layout.
        sides: columns that must be all text or all messages.
        chat_only: whether it is always a conversation, so that it needs a chat template.
        may_be_null: columns in which null stands for nothing.
    """

    name: str
    needs: Mapping[str, frozenset[str]]
    trainers: frozenset[Trainer]
    read: Converter
    converted: str | None = None
    optional: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    chat_only: bool = False
    may_be_null: tuple[str, ...] = field(default=())

    def columns(self, text_field: str) -> tuple[str, ...]:
        """Return the columns it needs, with ``dataset_text_field`` filled in."""
        return tuple(text_field if name == TEXT_FIELD else name for name in self.needs)

    def missing(self, columns: Mapping[str, Column], text_field: str) -> list[str]:
        """Return the needed columns that are not there."""
        return [name for name in self.columns(text_field) if name not in columns]

    def mismatched(self, columns: Mapping[str, Column], text_field: str) -> list[str]:
        """Return the columns that are there but hold another kind of value."""
        return [
            name
            for name, kinds in zip(self.columns(text_field), self.needs.values(), strict=True)
            if name in columns and columns[name].kind not in (*kinds, "list", "nothing")
        ]

    def matches(self, columns: Mapping[str, Column], text_field: str) -> bool:
        """Return whether these columns have this layout."""
        return (
            not self.missing(columns, text_field)
            and not self.mismatched(columns, text_field)
            and not any(name in columns for name in self.unlike)
            and len({columns[name].kind == "text" for name in self.sides}) <= 1
        )

    def is_chat(self, columns: Mapping[str, Column]) -> bool:
        """Return whether such rows are conversations before any conversion."""
        return self.chat_only or any(columns[n].kind in _ONE for n in self.sides if n in columns)


def _answers_to(asked: str, name: str, unlike: tuple[str, ...] = ()) -> Layout:
    """Return the layout of two answers, text or messages, to a prompt that TRL cannot read."""
    side = _TEXT | _ONE
    return Layout(
        name=name,
        needs={asked: side if asked == "prompt" else _CHAT, "chosen": side, "rejected": side},
        trainers=PAIRED,
        read=convert.answered(asked),
        converted=f"{asked}, chosen and rejected to prompt, chosen and rejected messages",
        unlike=unlike,
        sides=("chosen", "rejected"),
        chat_only=True,
    )


#: Every layout, most specific first.
LAYOUTS: tuple[Layout, ...] = (
    Layout(
        name="tokenised",
        needs={"input_ids": _IDS},
        trainers=SFT,
        read=convert.tokenised,
        optional=("labels", "attention_mask", "completion_mask", "assistant_masks"),
    ),
    _answers_to("conversations", "conversation preference", unlike=("prompt",)),
    _answers_to("messages", "messages preference", unlike=("prompt", "conversations")),
    Layout(
        name="preference",
        needs={"prompt": _SIDE, "chosen": _SIDE, "rejected": _SIDE},
        trainers=PAIRED,
        read=convert.sides("prompt", "chosen", "rejected"),
        sides=("prompt", "chosen", "rejected"),
    ),
    _answers_to("prompt", "preference of text and messages"),
    Layout(
        name="OpenAI preference",
        needs={"input": OBJECT, "preferred_output": _CHAT, "non_preferred_output": _CHAT},
        trainers=PAIRED,
        read=convert.openai_preference,
        converted="input, preferred_output and non_preferred_output to prompt, chosen and rejected",
        chat_only=True,
    ),
    Layout(
        name="instruction preference",
        needs={"instruction": _TEXT, "chosen": _TEXT, "rejected": _TEXT},
        trainers=PAIRED,
        read=convert.instruction(chosen="chosen", rejected="rejected"),
        converted="instruction, input, chosen and rejected to prompt, chosen and rejected",
        optional=("input", "system"),
        unlike=("conversations", "messages"),
        may_be_null=("input", "system"),
    ),
    Layout(
        name="preference with implicit prompt",
        needs={"chosen": _SIDE, "rejected": _SIDE},
        trainers=PAIRED,
        read=convert.sides("chosen", "rejected"),
        sides=("chosen", "rejected"),
        unlike=("prompt", "conversations"),
    ),
    Layout(
        name="rated completion",
        needs={"prompt": _SIDE, "completion": _SIDE, "label": _FLAG},
        trainers=KTO,
        read=convert.labelled(convert.sides("prompt", "completion")),
        sides=("prompt", "completion"),
    ),
    Layout(
        name="rated messages",
        needs={"messages": _CHAT, "label": _FLAG},
        trainers=KTO,
        read=convert.labelled_messages,
        converted="messages to prompt and completion messages, divided before the last one",
        chat_only=True,
    ),
    Layout(
        name="rated conversations",
        needs={"conversations": _CHAT, "label": _FLAG},
        trainers=KTO,
        read=convert.labelled_messages,
        converted="conversations to prompt and completion messages, divided before the last one",
        chat_only=True,
    ),
    Layout(
        name="rated instruction",
        needs={"instruction": _TEXT, "output": _TEXT, "label": _FLAG},
        trainers=KTO,
        read=convert.labelled(convert.instruction(completion="output")),
        converted="instruction, input and output to prompt and completion",
        optional=("input", "system"),
        may_be_null=("input", "system"),
    ),
    Layout(
        name="prompt-completion",
        needs={"prompt": _SIDE, "completion": _SIDE},
        trainers=SFT,
        read=convert.sides("prompt", "completion"),
        sides=("prompt", "completion"),
    ),
    Layout(
        name="messages",
        needs={"messages": _CHAT},
        trainers=SFT,
        read=convert.messages,
        chat_only=True,
    ),
    Layout(
        name="conversations",
        needs={"conversations": _CHAT},
        trainers=SFT,
        read=convert.messages,
        converted="conversations to role/content messages",
        chat_only=True,
        unlike=("chosen", "rejected"),
    ),
    Layout(
        name="instruction/input/output",
        needs={"instruction": _TEXT, "input": _TEXT, "output": _TEXT},
        trainers=SFT,
        read=convert.instruction(completion="output"),
        converted="instruction, input and output to prompt and completion",
        optional=("system",),
        may_be_null=("input", "system"),
    ),
    Layout(
        name="text",
        needs={TEXT_FIELD: _TEXT},
        trainers=SFT,
        read=convert.text,
    ),
    Layout(
        name="prompt-only",
        needs={"prompt": _SIDE},
        trainers=ONLINE,
        read=convert.sides("prompt"),
        sides=("prompt",),
        unlike=("completion", "chosen", "rejected"),
    ),
)


def has_history(layout: Layout, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the ``history`` column where its lists are earlier turns of instruction rows.

    LLaMA-Factory's layout: a list of question and answer pairs, oldest first.
    """
    history = columns.get("history")
    earlier = "instruction" in layout.needs and history is not None and history.kind == "lists"
    return ("history",) if earlier else ()


def reads_text_first(layout: Layout, columns: Mapping[str, Column], text_field: str) -> bool:
    """Return whether TRL's sft would end a text column with the end token instead of the answer.

    It looks for ``dataset_text_field`` before it looks for a completion (trl 1.16,
    ``SFTTrainer._prepare_dataset``), so that no completion would have an end.
    """
    beside = layout.name == "prompt-completion" and not layout.is_chat(columns)
    return beside and text_field in columns


def accepted(trainer: Trainer) -> list[Layout]:
    """Return the layouts a trainer accepts, in the table's order."""
    return [layout for layout in LAYOUTS if trainer in layout.trainers]
