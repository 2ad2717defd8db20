"""Prepares the rows of a job once: load, recognise, check, convert, TRL's own preparation, measure.

Wiring only; every step has its module. What is written lies in one folder, from which the probes
and the command line read: rows, lengths, profile and, when converted, a file TRL reads.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.core.errors import BadInput, NotBuiltYet, ToolFailure
from autotune.core.job import DatasetSource, Trainer
from autotune.core.lengths import Lengths
from autotune.core.profile import DatasetProfile, Notice
from autotune.dataset.convert import Reading
from autotune.dataset.layouts import Layout
from autotune.dataset.load import load_rows, local_files
from autotune.dataset.measure import measure, measure_sides, real_tokens
from autotune.dataset.preflight import (
    check_prepared,
    check_skip,
    implicit_cut,
    remarks,
    silenced_calls,
    unread_prompt,
)
from autotune.dataset.recognise import recognise
from autotune.dataset.rewrite import changes_of, rewrite
from autotune.dataset.scan import Column
from autotune.dataset.store import (
    entry_of,
    hash_files,
    key_of,
    new_entry,
    private_caches,
    publish,
)
from autotune.dataset.survey import BESIDE, survey_rows
from autotune.dataset.tokenizer import TokenizerFacts, check_tokenizer, hash_of, open_tokenizer
from autotune.dataset.trl_rows import (
    PREPARED_COLUMNS,
    SFT_OPTIONS,
    TrlRows,
    prepare_with_trl,
    workers,
)

if TYPE_CHECKING:
    from datasets import Dataset

#: Told what is being done, and how many rows it is done to.
Progress = Callable[[str, int], None]

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


def prepare(
    source: DatasetSource,
    *,
    trainer: Trainer,
    tokenizer_dir: Path,
    model_config: Any,
    options: Mapping[str, Any],
    out_dir: Path,
    cache_dir: Path,
    split: str | None = None,
    progress: Progress | None = None,
) -> DatasetProfile:
    """Prepare one split as the trainer will, uncut, and write everything known of it.

    Writes ``rows/`` (Arrow; SFT: ``input_ids``, ``labels``), ``lengths.npz``, ``profile.json`` and,
    when rows were converted, ``converted/train.parquet`` into ``out_dir``.

    Args:
        source: where the rows come from.
        trainer: whose preparation is run.
        tokenizer_dir: local folder of the tokenizer.
        model_config: the model's transformers config; its vocabulary and positions count.
        options: TRL options, upstream spelling, final types.
        out_dir: folder to write into; made when missing.
        cache_dir: folder of prepared rows by content, shared by runs.
        split: split to prepare, None for the source's train split.
        progress: told what is being done and to how many rows.

    Raises:
        BadInput: anything wrong with the rows, the tokenizer or the options, before any probe.
        NotBuiltYet: a trainer or kind of rows this version cannot prepare.
    """
    if trainer not in PREPARED_COLUMNS:
        raise NotBuiltYet(f"rows for trl {trainer.value} cannot be prepared in this version.")
    if not Path(tokenizer_dir).is_dir():
        raise BadInput(f"{tokenizer_dir} is not a folder with a tokenizer.")
    tell = progress or _say_nothing
    cache_dir = Path(cache_dir)
    wanted = split or source.train_split
    files = local_files(source)
    loaded: Dataset | None = None
    if files is None:
        loaded = load_rows(source, wanted, cache_dir=cache_dir / "datasets")
    text = model_config.get_text_config()
    key = key_of(
        {
            "rows": hash_files(files) if files is not None else loaded and loaded._fingerprint,
            "where": [wanted, source.config, _settings_of(source)],
            "tokenizer": hash_of(Path(tokenizer_dir)),
            "trainer": trainer.value,
            "options": {name: options.get(name) for name in (*SFT_OPTIONS, "dataset_kwargs")},
            "template": _template_hash(options),
            "model": [text.vocab_size, _positions(text)],
            "versions": _versions(),
        }
    )
    entry = entry_of(cache_dir, key)
    if entry is None:
        tell("load", 0)
        rows = loaded or load_rows(source, wanted, cache_dir=cache_dir / "datasets")
        scratch = cache_dir / "scratch"
        with private_caches(scratch), new_entry(cache_dir, key) as folder:
            _prepare_into(
                folder, rows, trainer, Path(tokenizer_dir), text, options, scratch, key, tell
            )
        entry = cache_dir / "prepared" / key
    out_dir = Path(out_dir)
    publish(entry, out_dir)
    return _finish(out_dir, trainer, options)


def read_profile(out_dir: Path) -> DatasetProfile:
    """Read the profile ``prepare`` wrote.

    Raises:
        ToolFailure: there is none, or it is damaged.
    """
    path = Path(out_dir) / PROFILE_FILE
    try:
        return DatasetProfile.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ToolFailure(f"{path} is not a data set profile: {error}") from error


def _prepare_into(  # noqa: PLR0917 -- called once, above
    folder: Path,
    rows: Dataset,
    trainer: Trainer,
    tokenizer_dir: Path,
    text: Any,
    options: Mapping[str, Any],
    scratch: Path,
    key: str,
    tell: Progress,
) -> None:
    """Fill a cache entry: everything that depends on content alone."""
    text_field = options.get("dataset_text_field") or "text"
    tell("recognise", len(rows))
    layout, columns = recognise(rows, trainer, text_field)
    check_skip(options, layout.name == "tokenised", rows.column_names)
    survey = survey_rows(rows, layout, columns, text_field)

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
    )
    changes = [] if tokenised else changes_of(layout, survey, reading)
    given = rows
    if changes:
        tell("convert", len(rows))
        rows = rewrite(rows, layout, survey, reading, workers(len(rows), options))
        (folder / CONVERTED_FILE).parent.mkdir()
        rows.to_parquet(str(folder / CONVERTED_FILE))

    tell("tokenise", len(rows))
    how = {"tokenizer": tokenizer, "vocabulary": text.vocab_size, "options": options}
    made = _by_trl(rows, trainer, tokenised, scratch, **how)
    tell("measure", len(made.rows))
    lengths = _measured(made, trainer, given if tokenised else None, facts)
    check_prepared(lengths)
    made.rows.save_to_disk(str(folder / ROWS_DIR))
    _write_lengths(folder / LENGTHS_FILE, lengths)
    positions = _positions(text)
    profile = DatasetProfile(
        layout=_layout_words(layout, columns, text_field),
        conversion="; ".join(changes) or None,
        rows_given=len(given),
        rows_used=len(made.rows),
        tokens=int(lengths.tokens.sum()),
        label_tokens=lengths.labels_kept(None),
        quantiles=lengths.quantiles(),
        longest_row=lengths.longest_row,
        model_positions=positions,
        vocabulary=made.vocabulary,
        pad_token=facts.pad_token,
        notices=(
            *survey.notices(),
            *unread_prompt(layout.name, _unread(columns, layout, text_field)),
            *silenced_calls(survey.tool_calls, rendered=facts.render_calls),
            *remarks(lengths, positions),
        ),
        rows_dir=ROWS_DIR,
        converted_file=str(CONVERTED_FILE) if changes else None,
        fingerprint=key,
    )
    (folder / PROFILE_FILE).write_text(profile.model_dump_json(indent=2), encoding="utf-8")


def _finish(out_dir: Path, trainer: Trainer, options: Mapping[str, Any]) -> DatasetProfile:
    """Point the published profile at its own folder and add what depends on this job's options."""
    profile = read_profile(out_dir)
    lengths = Lengths.read(out_dir / LENGTHS_FILE)
    first: tuple[Notice, ...] = implicit_cut(lengths, trainer, options)
    converted = profile.converted_file
    profile = profile.model_copy(
        update={
            "rows_dir": str((out_dir / ROWS_DIR).resolve()),
            "converted_file": str((out_dir / converted).resolve()) if converted else None,
            "notices": (*first, *profile.notices),
        }
    )
    # the published file may be a hard link into the cache: replace it, never write through it
    path = out_dir / PROFILE_FILE
    fresh = path.with_suffix(f".{os.getpid()}.tmp")
    fresh.write_text(profile.model_dump_json(indent=2), encoding="utf-8")
    fresh.replace(path)
    return profile


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
        return measure_sides(made.rows, *_SIDES[trainer], vocabulary=made.vocabulary)
    lengths = measure(made.rows, vocabulary=made.vocabulary)
    if given is None:
        return lengths
    real = real_tokens(given, pad_id=facts.pad_id, pad_is_eos=facts.pad_is_eos)
    return dataclasses.replace(lengths, real=real)


def _write_lengths(path: Path, lengths: Lengths) -> None:
    arrays = {
        field.name: getattr(lengths, field.name)
        for field in dataclasses.fields(lengths)
        if getattr(lengths, field.name) is not None
    }
    narrow = {k: v if k == "label_positions" else v.astype(np.int32) for k, v in arrays.items()}
    np.savez(path, **narrow)


def _layout_words(layout: Layout, columns: Mapping[str, Any], text_field: str) -> str:
    if layout.name == "text" and text_field != "text":
        return f"text (column {text_field!r})"
    if "tools" in columns and layout.is_chat(columns):
        return f"{layout.name} with tools"
    return layout.name


def _unread(columns: Mapping[str, Column], layout: Layout, text_field: str) -> list[str]:
    read = {*layout.columns(text_field), *layout.optional, *BESIDE}
    return [
        column.name
        for column in columns.values()
        if column.name not in read and column.kind in ("text", "messages", "turns")
    ]


def _positions(text: Any) -> int | None:
    positions = getattr(text, "max_position_embeddings", None)
    return int(positions) if positions else None


def _settings_of(source: DatasetSource) -> Any:
    """Return what of a ``datasets:`` block matters beside the files themselves."""
    return None if source.blocks is None else list(source.blocks)


def _template_hash(options: Mapping[str, Any]) -> str | None:
    path = options.get("chat_template_path")
    if path is None:
        return None
    path = Path(path)
    if path.is_dir():
        return hash_of(path)
    if not path.is_file():
        raise BadInput(f"chat_template_path is {str(path)!r}, which does not exist.")
    return hash_files([path])


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("datasets", "tokenizers", "transformers", "trl")}


def _say_nothing(what: str, rows: int) -> None:
    return None
