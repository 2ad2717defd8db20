"""Fills one entry of prepared rows: recognise, check, convert, TRL's preparation, measure, write.

Wiring of the modules beside it; where entries live and how they are shared is ``store``'s matter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.core.errors import ToolFailure
from autotune.core.job import Trainer
from autotune.core.lengths import Lengths
from autotune.core.positions import Positions
from autotune.core.profile import DatasetProfile, LengthHistogram, Notice
from autotune.dataset.convert import Reading
from autotune.dataset.findings import Survey
from autotune.dataset.heard import warnings_heard
from autotune.dataset.layouts import Layout
from autotune.dataset.measure import measure, measure_sides, real_tokens
from autotune.dataset.parts import check_parts
from autotune.dataset.preflight import (
    check_prepared,
    check_skip,
    remarks,
    sampled_columns,
)
from autotune.dataset.progress import Progress, bars_told
from autotune.dataset.recognise import recognise
from autotune.dataset.rewrite import changes_of, rewrite
from autotune.dataset.scan import SCANNED_ROWS, Column
from autotune.dataset.survey import BESIDE, survey_rows
from autotune.dataset.survival import follow
from autotune.dataset.switches import unread_weights
from autotune.dataset.tokenizer import TokenizerFacts, check_tokenizer, open_tokenizer
from autotune.dataset.trl_rows import TrlRows, prepare_with_trl, workers
from autotune.dataset.unlearned import check_answers, unlearned
from autotune.dataset.unread import unread_label, unread_mask

if TYPE_CHECKING:
    from datasets import Dataset

PROFILE_FILE = "profile.json"
LENGTHS_FILE = "lengths.npz"
ROWS_DIR = "rows"
CONVERTED_FILE = Path("converted") / "train.parquet"

#: Already tokenised rows that TRL's checks are tried on; the rest goes through in bulk.
_TRIED_ROWS = 64
_SIDES: dict[Trainer, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Trainer.DPO: (("prompt_ids", "chosen_ids"), ("prompt_ids", "rejected_ids")),
    Trainer.REWARD: (("chosen_ids",), ("rejected_ids",)),
    Trainer.KTO: (("prompt_ids", "completion_ids"), ()),
}


def fill_entry(
    folder: Path,
    rows: Dataset,
    *,
    trainer: Trainer,
    tokenizer_dir: Path,
    text: Any,
    positions: Positions | None,
    options: Mapping[str, Any],
    scratch: Path,
    key: str,
    tell: Progress,
    scanned_rows: int = SCANNED_ROWS,
    write_because: str | None = None,
    uniform: bool = False,
    sampled: tuple[Notice, ...] = (),
) -> None:
    """Prepare rows and write everything that depends on content alone.

    Args:
        folder: empty folder of the entry.
        rows: the split as loaded.
        trainer: whose preparation is run.
        tokenizer_dir: local folder of the tokenizer.
        text: the model's text config; its vocabulary counts.
        positions: how long a sequence the model takes; None when unlimited.
        options: TRL options.
        scratch: folder for what is written on the way.
        key: the entry's name, which becomes the profile's fingerprint.
        tell: told what is being done and how many rows are done.
        scanned_rows: rows of a free-form column that are looked into for the layout.
        write_because: why the rows have to be written for TRL although they need no conversion.
        uniform: give converted messages the one type that holds any of them, so that the files
            of two splits have the same columns.
        sampled: what is to be said when these are not all rows.

    Raises:
        BadInput: anything wrong with the rows, the tokenizer or the options.
        NotBuiltYet: a kind of rows this version cannot prepare.
    """
    text_field = options.get("dataset_text_field") or "text"
    tell("recognise", 0, len(rows))
    layout, columns = recognise(rows, trainer, text_field, scanned_rows)
    check_skip(options, layout.name == "tokenised", rows.column_names)
    survey = survey_rows(rows, layout, columns, text_field, trainer, tell)
    survey.plain_messages = survey.plain_messages and not uniform

    tokenizer = open_tokenizer(
        tokenizer_dir, trust_remote_code=bool(options.get("trust_remote_code"))
    )
    tokenised = layout.name == "tokenised"
    chat = layout.is_chat(columns)
    facts = check_tokenizer(
        tokenizer, tokenizer_dir, options, chat=chat, plain=not chat and not tokenised
    )
    reading = Reading(
        chat=facts.template is not None,
        render_calls=facts.render_calls,
        text_field=text_field,
        tools="tools" in columns,
        system=survey.system > 0,
        history=survey.history > 0,
        flatten=survey.parts and not facts.render_parts,
    )
    check_parts(survey.odd_part, reading.flatten)
    changes = [] if tokenised else changes_of(layout, survey, reading)
    given = rows
    if changes:
        with bars_told(tell, "convert"):
            rows = rewrite(rows, layout, survey, reading, workers(len(rows), options))
    if write_because is not None:
        changes.append(write_because)
    if changes:
        tell("write", 0, len(rows))
        (folder / CONVERTED_FILE).parent.mkdir()
        rows.to_parquet(str(folder / CONVERTED_FILE))

    tell("tokenise", 0, len(rows))
    how = {"tokenizer": tokenizer, "vocabulary": text.vocab_size, "options": options}
    with bars_told(tell, "tokenise"), warnings_heard(scratch) as heard:
        made = _by_trl(rows, trainer, tokenised, scratch, **how)
    tell("measure", 0, len(made.rows))
    lengths = _measured(made, trainer, given if tokenised else None, facts)
    check_prepared(lengths)
    read = _read(layout, columns, survey, text_field)
    with bars_told(tell, "follow"):
        traces = follow(
            given,
            made.rows,
            read=read,
            sides=_sequences(trainer),
            tokenizer=made.tokenizer,
            workers=workers(len(given), options),
        )
    check_answers(traces, len(given), read)
    with bars_told(tell, "save"):
        made.rows.save_to_disk(str(folder / ROWS_DIR))
    _write_lengths(folder / LENGTHS_FILE, lengths)
    profile = DatasetProfile(
        layout=_layout_words(layout, columns, text_field),
        conversion="; ".join(changes) or None,
        rows_given=len(given),
        rows_used=len(made.rows),
        tokens=lengths.total,
        label_tokens=lengths.labels_kept(None),
        quantiles=lengths.quantiles(),
        longest_row=lengths.longest_row,
        model_positions=positions.most if positions else None,
        vocabulary=made.vocabulary,
        pad_token=facts.pad_token,
        notices=(
            *sampled,
            *sampled_columns(columns, [*layout.columns(text_field), *layout.optional], len(given)),
            *survey.notices(),
            *unlearned(traces, len(given), read, layout.name),
            *survey.switches.notices(len(given), facts.template),
            *unread_weights(columns),
            *unread_label(trainer, columns),
            *unread_mask(columns, options),
            *heard.notices(trainer.value),
            *remarks(lengths, positions),
        ),
        rows_dir=ROWS_DIR,
        converted_file=str(CONVERTED_FILE) if changes else None,
        fingerprint=key,
        length_histogram=LengthHistogram.of(lengths.tokens),
    )
    (folder / PROFILE_FILE).write_text(profile.model_dump_json(indent=2), encoding="utf-8")


def _by_trl(rows: Dataset, trainer: Trainer, tokenised: bool, scratch: Path, **how: Any) -> TrlRows:
    """Let TRL prepare the rows; where its result is a copy of a column, copy it in bulk."""
    masks = [c for c in ("completion_mask", "assistant_masks") if c in rows.column_names]
    if not tokenised or (masks and "labels" not in rows.column_names):
        return prepare_with_trl(rows, trainer=trainer, scratch=scratch, **how)
    tried = rows.select(range(min(_TRIED_ROWS, len(rows))))
    made = prepare_with_trl(tried, trainer=trainer, scratch=scratch, **how)
    bulk = rows
    if "labels" not in rows.column_names:
        bulk = rows.with_format("arrow").map(_labels_are_ids, batched=True, batch_size=10_000)
    bulk = bulk.with_format(None).select_columns(["input_ids", "labels"])
    for index in range(len(tried)):
        if made.rows[index] != bulk[index]:
            raise ToolFailure(f"row {index + 1} is not what TRL makes of it: please report this.")
    return dataclasses.replace(made, rows=bulk)


def _labels_are_ids(table: Any) -> Any:
    return table.append_column("labels", table["input_ids"])


def _measured(
    made: TrlRows, trainer: Trainer, given: Dataset | None, facts: TokenizerFacts
) -> Lengths:
    if trainer is not Trainer.SFT:
        lengths = measure_sides(made.rows, *_SIDES[trainer], vocabulary=made.vocabulary)
        return dataclasses.replace(lengths, drops_longer=trainer is Trainer.REWARD)
    lengths = measure(made.rows, vocabulary=made.vocabulary)
    if given is None:
        return lengths
    real = real_tokens(given, pad_id=facts.pad_id, pad_is_eos=facts.pad_is_eos)
    return dataclasses.replace(lengths, real=real)


def _write_lengths(path: Path, lengths: Lengths) -> None:
    arrays = {
        field.name: getattr(lengths, field.name)
        for field in dataclasses.fields(lengths)
        if getattr(lengths, field.name) is not None and field.name != "held_out"  # the job's matter
    }
    wide = ("label_positions", "drops_longer")
    narrow = {k: v if k in wide else v.astype(np.int32) for k, v in arrays.items()}
    np.savez(path, **narrow)


def _layout_words(layout: Layout, columns: Mapping[str, Any], text_field: str) -> str:
    if layout.name == "text" and text_field != "text":
        return f"text (column {text_field!r})"
    if "tools" in columns and layout.is_chat(columns):
        return f"{layout.name} with tools"
    return layout.name


def _sequences(trainer: Trainer) -> tuple[tuple[str, ...], ...]:
    """Return the columns of ids that make one sequence, for every sequence of a prepared row."""
    return tuple(filter(None, _SIDES[trainer])) if trainer in _SIDES else (("input_ids",),)


def _read(
    layout: Layout, columns: Mapping[str, Column], survey: Survey, text_field: str
) -> frozenset[str]:
    """Return the columns whose texts the layout reads; of tokenised rows that is no text."""
    if layout.name == "tokenised":
        return frozenset()
    read = {*layout.columns(text_field), *layout.optional, *BESIDE}
    read |= {"system"} if survey.system else set()
    read |= {"history"} if survey.history else set()
    return frozenset(read & set(columns))
