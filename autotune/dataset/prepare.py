"""Prepares the rows of a job once: loads them, or finds them prepared already, and publishes them.

The steps themselves are in ``entry``. What is written lies in one folder, from which the probes
and the command line read: rows, lengths, profile and, when converted, a file TRL reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.core.errors import BadInput, NotBuiltYet, ToolFailure
from autotune.core.job import DatasetSource, Trainer
from autotune.core.lengths import Lengths
from autotune.core.positions import Positions, positions_of
from autotune.core.profile import DatasetProfile, Notice
from autotune.dataset.entry import (
    LENGTHS_FILE,
    PROFILE_FILE,
    ROWS_DIR,
    fill_entry,
)
from autotune.dataset.files import not_utf8
from autotune.dataset.load import local_files
from autotune.dataset.preflight import check_left, check_next_token, own_cut
from autotune.dataset.progress import Progress, bars_told, say_nothing
from autotune.dataset.ratings import uneven_ratings
from autotune.dataset.sample import Sample, sample_of
from autotune.dataset.scan import SCANNED_ROWS
from autotune.dataset.store import (
    entry_of,
    hash_files,
    key_of,
    new_entry,
    private_caches,
    publish,
    trim,
)
from autotune.dataset.tokenizer import hash_of
from autotune.dataset.trl_rows import PREPARED_COLUMNS, SFT_OPTIONS


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
    scanned_rows: int = SCANNED_ROWS,
    sample_rows: int | None = None,
    write_because: str | None = None,
    uniform: bool = False,
    positions: Positions | None = None,
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
        progress: told what is being done and how many rows are done.
        scanned_rows: rows of a free-form column that are looked into for the layout.
        sample_rows: most rows to prepare; None prepares all, of a stream ``STREAM_ROWS``.
        write_because: why rows have to be written for TRL although they need no conversion.
        uniform: give converted rows columns that those of every other split have as well.
        positions: how long a sequence the model takes; None takes what its config names.

    Raises:
        BadInput: anything wrong with the rows, the tokenizer or the options, before any probe.
        NotBuiltYet: a trainer or kind of rows this version cannot prepare.
    """
    if trainer not in PREPARED_COLUMNS:
        raise NotBuiltYet(f"rows for trl {trainer.value} cannot be prepared in this version.")
    if not Path(tokenizer_dir).is_dir():
        raise BadInput(f"{tokenizer_dir} is not a folder with a tokenizer.")
    tell = progress or say_nothing
    cache_dir = Path(cache_dir)
    wanted = split or source.train_split
    copies = cache_dir / "datasets"
    files = local_files(source)
    sample: Sample | None = None
    if streams(options):
        # what a stream holds is only known once it is read
        sample = sample_of(source, wanted, sample_rows, cache_dir=copies, stream=True)
    elif files is None:
        with bars_told(tell, "load"):
            sample = sample_of(source, wanted, sample_rows, cache_dir=copies)
    text = model_config.get_text_config()
    limit = positions or positions_of(text)
    key = key_of(
        {
            "rows": hash_files(files or []) if sample is None else sample.fingerprint,
            "where": [wanted, source.config, _settings_of(source)],
            "how": [sample_rows, scanned_rows, write_because, uniform],
            "tokenizer": hash_of(Path(tokenizer_dir)),
            "trainer": trainer.value,
            "options": {name: options.get(name) for name in (*SFT_OPTIONS, "dataset_kwargs")},
            "template": _template_hash(options),
            "model": [text.vocab_size, limit and limit.model_dump()],
            "versions": _versions(),
        }
    )
    entry = entry_of(cache_dir, key)
    if entry is None:
        tell("load", 0, 0)
        if sample is None:
            with bars_told(tell, "load"):
                sample = sample_of(source, wanted, sample_rows, cache_dir=copies)
        scratch = cache_dir / "scratch"
        with _utf8(files or []), private_caches(scratch), new_entry(cache_dir, key) as folder:
            fill_entry(
                folder,
                sample.rows,
                trainer=trainer,
                tokenizer_dir=Path(tokenizer_dir),
                text=text,
                positions=limit,
                options=options,
                scratch=scratch,
                key=key,
                tell=tell,
                scanned_rows=scanned_rows,
                write_because=write_because,
                uniform=uniform,
                sampled=sample.notices,
            )
        entry = cache_dir / "prepared" / key
        trim(cache_dir)
    out_dir = Path(out_dir)
    publish(entry, out_dir)
    return _finish(out_dir, trainer, options, limit)


@contextmanager
def _utf8(files: list[Path]) -> Iterator[None]:
    """Name the file where text in another encoding is only noticed when it is read."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise not_utf8(files, error) from error


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


def _finish(
    out_dir: Path, trainer: Trainer, options: Mapping[str, Any], limit: Positions | None
) -> DatasetProfile:
    """Point the published profile at its own folder and add what depends on this job's options."""
    profile = read_profile(out_dir)
    lengths = Lengths.read(out_dir / LENGTHS_FILE)
    check_left(lengths, options, limit)
    if trainer is Trainer.SFT:
        check_next_token(lengths, options)
    first: tuple[Notice, ...] = own_cut(lengths, trainer, options, profile.model_positions)
    if trainer is Trainer.KTO:
        first += uneven_ratings(*_ratings(out_dir / ROWS_DIR), options)
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


def _ratings(rows_dir: Path) -> tuple[int, int]:
    """Return how many prepared rows are rated desirable, and how many there are."""
    from datasets import load_from_disk

    labels = load_from_disk(str(rows_dir)).with_format("numpy")["label"][:]
    return int(labels.sum()), len(labels)


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


def streams(options: Mapping[str, Any]) -> bool:
    """Return whether the user's config reads the rows as a stream."""
    return bool(options.get("dataset_streaming") or options.get("streaming"))
