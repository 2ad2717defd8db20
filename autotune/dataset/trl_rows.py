"""Lets TRL's own trainers prepare the rows, on a stand-in model that is never stepped.

The trainer checks, renders, tokenises and labels; nothing is truncated, packed or shuffled. The
stand-in has one layer of width 8 and the model's vocabulary.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from autotune.core.errors import BadInput, NotBuiltYet
from autotune.core.job import Trainer

if TYPE_CHECKING:
    from datasets import Dataset

#: TRL options that change what preparation makes of the rows, by trainer family.
SHARED_OPTIONS = ("eos_token", "pad_token", "chat_template_path", "trust_remote_code")
SFT_OPTIONS = (
    *SHARED_OPTIONS,
    "dataset_text_field",
    "completion_only_loss",
    "assistant_only_loss",
)
#: Columns a trainer's preparation leaves that its collator reads; Reward's margins are optional.
PREPARED_COLUMNS = {
    Trainer.SFT: ("input_ids", "labels"),
    Trainer.DPO: ("prompt_ids", "chosen_ids", "rejected_ids"),
    Trainer.REWARD: ("chosen_ids", "rejected_ids", "margin"),
    Trainer.KTO: ("prompt_ids", "completion_ids", "label"),
}
#: What TRL's checks and the libraries below it raise on rows they cannot take.
_REFUSALS = (ValueError, TypeError, KeyError, RuntimeError, AttributeError, IndexError)
#: From this many rows on tokenising is spread over the cores.
PARALLEL_ROWS = 20_000


@dataclass(frozen=True)
class TrlRows:
    """Hold what TRL's preparation made.

    Args:
        rows: the prepared rows, uncut, with the columns of ``PREPARED_COLUMNS``.
        vocabulary: rows of the input embedding after TRL's own changes to the model.
        tokenizer: the tokenizer after TRL's own changes.
    """

    rows: Dataset
    vocabulary: int
    tokenizer: Any


def prepare_with_trl(
    rows: Dataset,
    *,
    trainer: Trainer,
    tokenizer: Any,
    vocabulary: int,
    options: Mapping[str, Any],
    scratch: Path,
) -> TrlRows:
    """Run the trainer's own preparation over all rows, without truncation.

    Args:
        rows: rows in a layout TRL reads.
        trainer: one of ``PREPARED_COLUMNS``.
        tokenizer: tokenizer or processor; TRL may change it.
        vocabulary: rows of the model's input embedding.
        options: TRL options; those that matter to preparation are passed on.
        scratch: folder for what the data set library writes on the way.

    Raises:
        BadInput: TRL refuses the rows or the options, in its words, with the row when one fails.
        NotBuiltYet: a trainer without a preparation here.
    """
    if trainer not in PREPARED_COLUMNS:
        raise NotBuiltYet(f"rows for trl {trainer.value} cannot be prepared in this version.")
    common = {"processing_class": tokenizer, "train_dataset": rows}
    arguments = _arguments(trainer, options, len(rows), scratch)
    try:
        built = _build(trainer, vocabulary, arguments, common)
    except (*_REFUSALS, TemplateError) as error:
        raise _refusal(error, rows, tokenizer, trainer) from error
    prepared = built.train_dataset
    columns = [c for c in PREPARED_COLUMNS[trainer] if c in prepared.column_names]
    return TrlRows(
        rows=prepared.select_columns(columns),
        vocabulary=int(built.model.get_input_embeddings().weight.shape[0]),
        tokenizer=built.processing_class,
    )


def workers(rows: int, options: Mapping[str, Any]) -> int | None:
    """Return the processes to tokenise with: the user's number, or the cores for many rows."""
    asked = options.get("dataset_num_proc")
    if asked:
        return int(asked)
    cores = len(os.sched_getaffinity(0))
    return cores if rows > PARALLEL_ROWS and cores > 1 else None


def _arguments(
    trainer: Trainer, options: Mapping[str, Any], rows: int, scratch: Path
) -> dict[str, Any]:
    names = SFT_OPTIONS if trainer is Trainer.SFT else SHARED_OPTIONS
    return {
        "output_dir": str(scratch / "trainer"),
        "max_length": None,
        "dataset_num_proc": workers(rows, options),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        **{name: options[name] for name in names if options.get(name) is not None},
    }


def _build(
    trainer: Trainer, vocabulary: int, arguments: dict[str, Any], common: dict[str, Any]
) -> Any:
    import trl

    if trainer is Trainer.SFT:
        args = trl.SFTConfig(packing=False, padding_free=False, **arguments)
        return trl.SFTTrainer(model=stand_in(vocabulary), args=args, **common)
    if trainer is Trainer.REWARD:
        args = trl.RewardConfig(**arguments)
        return trl.RewardTrainer(model=stand_in(vocabulary, scores=True), args=args, **common)
    pair = {"model": stand_in(vocabulary), "ref_model": stand_in(vocabulary)}
    if trainer is Trainer.DPO:
        return trl.DPOTrainer(args=trl.DPOConfig(**arguments), **pair, **common)
    return trl.KTOTrainer(args=trl.KTOConfig(**arguments), **pair, **common)


def stand_in(vocabulary: int, *, scores: bool = False) -> Any:
    """Return a one-layer Llama of width 8 with this vocabulary; with ``scores`` a reward head."""
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        num_labels=1,
        tie_word_embeddings=not scores,
    )
    return LlamaForSequenceClassification(config) if scores else LlamaForCausalLM(config)


def _refusal(error: Exception, rows: Dataset, tokenizer: Any, trainer: Trainer) -> BadInput:
    """Put TRL's refusal into one sentence, with the first row the chat template fails on."""
    words = (str(error) or type(error).__name__).splitlines()[0]
    place = _failing_row(rows, tokenizer)
    where = "" if place is None else f" at row {place + 1} (rows count from 1)"
    return BadInput(
        f"trl {trainer.value} cannot prepare the rows{where}: {type(error).__name__}: "
        f"{words.rstrip('.')}.",
        None
        if place is None
        else "Correct that row, or set chat_template_path to a template that takes it.",
    )


def _failing_row(rows: Dataset, tokenizer: Any) -> int | None:
    """Return the first row whose conversation the chat template refuses, None when all render."""
    columns = [c for c in ("messages", "prompt", "completion") if c in rows.column_names]
    if not columns:
        return None
    for index, row in enumerate(rows):
        said = [message for c in columns if isinstance(row[c], list) for message in row[c]]
        tools = row.get("tools")
        try:
            if said:
                tokenizer.apply_chat_template(
                    said, tokenize=False, tools=json.loads(tools) if tools else None
                )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError):
            return index
    return None
