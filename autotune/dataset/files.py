"""Loads rows by one name: a file, a folder of files, a folder of ``save_to_disk``, or a hub id.

What cannot be loaded ends in one sentence that says what was found and what to do.
"""

from __future__ import annotations

import glob
import lzma
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput, disk_full, first_line, nearest
from autotune.dataset.builders import BUILDERS, COMPRESSED, builder_of, data_suffix
from autotune.dataset.hub import load_hub
from autotune.dataset.json_lines import first_fault
from autotune.dataset.splits import pick, take

if TYPE_CHECKING:
    from datasets import Dataset

_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_AS_UTF8 = "Save it as UTF-8."
_UNREADABLE = (OSError, EOFError, ValueError, TypeError, StopIteration, zlib.error, lzma.LZMAError)


def load_one(
    text: str, config: str | None, split: str, cache_dir: Path, first: int | None
) -> Dataset:
    """Load a split of a file, a folder or a hub data set; arguments as in `load.load_rows`."""
    path = Path(text).expanduser()
    try:
        if path.is_file():
            return _load_file(path, split, cache_dir, first)
        if path.is_dir():
            return _load_folder(path, split, cache_dir, first)
    except PermissionError as error:
        raise BadInput(f"data set {path} cannot be read: permission denied.") from error
    if any(sign in path.name for sign in "*?["):
        raise BadInput(
            f"data set {text} is a pattern, expected a file, a folder or a hub data set.",
            f"Give the folder, or a --config whose datasets: block has data_files: {text}",
        )
    if "://" in text:
        raise BadInput(
            f"data set {text} is an address, expected a file, a folder or a hub data set.",
            "Download it first and give the file.",
        )
    if _looks_local(text):
        raise BadInput(f"data set {text} does not exist{neighbour(path)}.")
    return load_hub(text, config, split, first)


def _looks_local(text: str) -> bool:
    return (
        text.startswith((".", "/", "~"))
        or builder_of(Path(text)) is not None
        or _HUB_ID.match(text) is None
    )


def neighbour(path: Path) -> str:
    """Name the file of the same folder that is most like the missing one."""
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    return nearest(path.name, sorted(entry.name for entry in folder.iterdir())) or (
        f": nothing in {folder.resolve()} is called like it"
    )


def _load_file(path: Path, split: str, cache_dir: Path, first: int | None) -> Dataset:
    builder = builder_of(path)
    if builder is None:
        raise BadInput(
            f"data set {path} is a {path.suffix or 'suffixless'} file, "
            f"expected one of {', '.join(BUILDERS)}{nearest(path.suffix, list(BUILDERS))}."
        )
    shown = str(path)
    pattern = glob.escape(shown)  # what the data set library takes names for
    return load_files(builder, pattern, [path], split, cache_dir, shown=shown, first=first)


def _load_folder(folder: Path, split: str, cache_dir: Path, first: int | None) -> Dataset:
    import datasets

    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        try:
            loaded = datasets.load_from_disk(str(folder))
        except (OSError, ValueError, KeyError) as error:
            raise BadInput(f"data set {folder} cannot be read: {first_line(error)}") from error
        if isinstance(loaded, datasets.Dataset):
            loaded = datasets.DatasetDict({"train": loaded})
        rows = pick(loaded, split, str(folder))
        return rows if first is None else rows.select(range(min(first, len(rows))))
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and builder_of(p) is not None]
    if not files:
        raise BadInput(
            f"folder {folder} holds no {', '.join(BUILDERS)} file "
            "and was not written by Dataset.save_to_disk."
        )
    shown = f"folder {folder}"
    return load_files(str(folder), None, files, split, cache_dir, shown=shown, first=first)


def load_files(
    builder: str,
    data_files: Any,
    files: list[Path],
    split: str,
    cache_dir: Path,
    *,
    shown: str,
    columns: dict[str, Any] | None = None,
    first: int | None = None,
) -> Dataset:
    """Load local files, and on failure name the file and line that broke it."""
    import datasets

    for file in files:
        if file.stat().st_size == 0:
            raise BadInput(f"data set {file} is empty (0 bytes).", "Give a file with rows in it.")
    options: dict[str, Any] = dict(columns or {})
    if data_files is not None:
        options["data_files"] = data_files
    if builder == "csv" and files and data_suffix(files[0]) == ".tsv":
        options["sep"] = "\t"
    try:
        loaded = datasets.load_dataset(
            builder, cache_dir=str(cache_dir), streaming=first is not None, **options
        )
        if first is not None:
            return take(loaded, split, shown, first)
    except (*_UNREADABLE, datasets.exceptions.DatasetsError) as error:
        if full := disk_full(error):
            raise full from error
        if "no data" in str(error) or all(_is_blank(file) for file in files):
            raise BadInput(f"data set {shown} holds no rows.") from error
        raise BadInput(*_why_unreadable(files, error)) from error
    return pick(loaded, split, shown)


def _is_blank(file: Path) -> bool:
    if file.suffix.lower() in COMPRESSED:
        return False
    with file.open("rb") as stream:
        return not stream.read(4096).strip(b" \r\n\t[]\xef\xbb\xbf")


def not_utf8(files: list[Path], error: UnicodeDecodeError) -> BadInput:
    """Return what to say of text in another encoding.

    Args:
        files: the local files it may be in.
        error: what the data set library stumbled over.
    """
    for file in files:
        fault = first_fault(file) if builder_of(file) == "json" else None
        if fault is not None:
            return BadInput(f"data set {file} {fault}.", _AS_UTF8)
    named = ", ".join(map(str, files[:3])) or "the data set"
    return BadInput(f"data set {named} is not UTF-8 text ({error.reason}).", _AS_UTF8)


def _why_unreadable(files: list[Path], error: BaseException) -> tuple[str, str | None]:
    """Return the sentence for files the library refuses, and what to do."""
    from datasets.table import CastError

    for file in files:
        if builder_of(file) == "json":
            fault = first_fault(file)
            if fault is not None:
                return f"data set {file} {fault}.", _AS_UTF8 if "UTF-8" in fault else None
    cause = error.__cause__ or error
    if isinstance(cause, UnicodeDecodeError):
        said = not_utf8(files, cause)
        return said.message, said.hint
    named = ", ".join(map(str, files[:3]))
    if isinstance(cause, CastError):
        later, before = map(", ".join, (cause.table_column_names, cause.requested_column_names))
        return (
            f"data set {named} has other columns in one part than in another: "
            f"{later} where {before} came before.",
            "Give files with the same columns, or name one of them.",
        )
    return f"data set {named} cannot be read: {first_line(cause)}", None
