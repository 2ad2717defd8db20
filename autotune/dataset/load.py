"""Loads the rows a job names, from files, folders, the hub or a TRL ``datasets:`` block.

Knows where rows are, not what they mean: layouts are recognised elsewhere. What cannot be loaded
ends in one sentence that says what was found and what to do.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.errors import BadInput, nearest
from autotune.core.job import DatasetSource
from autotune.dataset.hub import load_hub
from autotune.dataset.json_lines import first_fault
from autotune.dataset.splits import first_line, pick, take

if TYPE_CHECKING:
    from datasets import Dataset

#: Builder of the data set library for every file ending it can read.
BUILDERS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".txt": "text",
}
_BUILDER_NAMES = frozenset(BUILDERS.values())
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_UNREADABLE = (OSError, EOFError, ValueError, TypeError, StopIteration, zlib.error)


def load_rows(
    source: DatasetSource, split: str, *, cache_dir: Path, first: int | None = None
) -> Dataset:
    """Load one split as a table with at least one row.

    Args:
        source: where the rows come from.
        split: name of the split, ``train[:10%]`` and ``a+b`` included; a single file has only
            ``train``.
        cache_dir: private folder for the Arrow copies the data set library makes of local files;
            hub data sets use the user's own hub cache.
        first: read the source as a stream and take at most this many rows; None loads all.

    Raises:
        BadInput: missing, unreadable, broken or empty, an unknown split, or an unreachable hub.
    """
    if source.blocks is not None:
        rows = _load_blocks(source, split, cache_dir, first)
    else:
        rows = _load_one(source.path, source.config, split, cache_dir, first)
    if len(rows) == 0:
        raise BadInput(f"{_shown(source)} holds no rows in split {split!r}.")
    return rows


def local_files(source: DatasetSource) -> list[Path] | None:
    """Return every local file the rows come from, sorted; None when some come from the hub."""
    if source.blocks is not None:
        paths = [path for block in source.blocks for path in _block_paths(block)]
    else:
        paths = [source.path]
    files: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            files += [p for p in sorted(path.rglob("*")) if p.is_file()]
        elif path.is_file():
            files.append(path)
        else:
            return None
    return files


def _shown(source: DatasetSource) -> str:
    return source.path if source.blocks is None else "the datasets: block"


def is_tabbed(source: DatasetSource) -> bool:
    """Return whether a file named by itself is separated by tabs, which TRL cannot be told."""
    if source.blocks is None:
        paths = [source.path]
    else:
        paths = [p for b in source.blocks if b.get("path") == "csv" for p in _block_paths(b)]
    return any(_data_suffix(Path(p)) == ".tsv" and not Path(p).is_dir() for p in paths)


def _load_one(
    text: str, config: str | None, split: str, cache_dir: Path, first: int | None
) -> Dataset:
    path = Path(text).expanduser()
    try:
        if path.is_file():
            return _load_file(path, split, cache_dir, first)
        if path.is_dir():
            return _load_folder(path, split, cache_dir, first)
    except PermissionError as error:
        raise BadInput(f"data set {path} cannot be read: permission denied.") from error
    if _looks_local(text):
        raise BadInput(f"data set {text} does not exist{_neighbour(path)}.")
    return load_hub(text, config, split, first)


def _looks_local(text: str) -> bool:
    return (
        text.startswith((".", "/", "~"))
        or _builder_of(Path(text)) is not None
        or _HUB_ID.match(text) is None
    )


def _neighbour(path: Path) -> str:
    """Name the file of the same folder that is most like the missing one."""
    folder = path.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    return nearest(path.name, sorted(entry.name for entry in folder.iterdir())) or (
        f": nothing in {folder.resolve()} is called like it"
    )


def _builder_of(path: Path) -> str | None:
    return BUILDERS.get(_data_suffix(path))


def _data_suffix(path: Path) -> str:
    """Return the ending before that of a compression, in lower case; "" without any."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in _COMPRESSED]
    return suffixes[-1] if suffixes else ""


def _load_file(path: Path, split: str, cache_dir: Path, first: int | None) -> Dataset:
    builder = _builder_of(path)
    if builder is None:
        raise BadInput(
            f"data set {path} is a {path.suffix or 'suffixless'} file, "
            f"expected one of {', '.join(BUILDERS)}{nearest(path.suffix, list(BUILDERS))}."
        )
    shown = str(path)
    return _load_files(builder, str(path), [path], split, cache_dir, shown=shown, first=first)


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
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and _builder_of(p) is not None]
    if not files:
        raise BadInput(
            f"folder {folder} holds no {', '.join(BUILDERS)} file "
            "and was not written by Dataset.save_to_disk."
        )
    shown = f"folder {folder}"
    return _load_files(str(folder), None, files, split, cache_dir, shown=shown, first=first)


def _load_files(
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
    if builder == "csv" and files and _data_suffix(files[0]) == ".tsv":
        options["sep"] = "\t"
    try:
        loaded = datasets.load_dataset(
            builder, cache_dir=str(cache_dir), streaming=first is not None, **options
        )
        if first is not None:
            return take(loaded, split, shown, first)
    except (*_UNREADABLE, datasets.exceptions.DatasetsError) as error:
        if "no data" in str(error) or all(_is_blank(file) for file in files):
            raise BadInput(f"data set {shown} holds no rows.") from error
        raise BadInput(_why_unreadable(files, error)) from error
    return pick(loaded, split, shown)


def _is_blank(file: Path) -> bool:
    if file.suffix.lower() in _COMPRESSED:
        return False
    with file.open("rb") as stream:
        return not stream.read(4096).strip(b" \r\n\t[]\xef\xbb\xbf")


def _why_unreadable(files: list[Path], error: BaseException) -> str:
    for file in files:
        if _builder_of(file) == "json":
            fault = first_fault(file)
            if fault is not None:
                return f"data set {file} {fault}."
    cause = error.__cause__ or error
    return f"data set {', '.join(map(str, files[:3]))} cannot be read: {first_line(cause)}"


def _block_paths(block: dict[str, Any]) -> list[str]:
    files = block.get("data_files")
    if isinstance(files, dict):
        files = [
            f for value in files.values() for f in ([value] if isinstance(value, str) else value)
        ]
    if isinstance(files, str):
        files = [files]
    if files:
        base = Path(block.get("data_dir") or "")
        return [str(base / file) for file in files]
    return [str(block.get("data_dir") or block.get("path", ""))]


def _load_blocks(source: DatasetSource, split: str, cache_dir: Path, first: int | None) -> Dataset:
    """Load a mixture as ``trl.get_dataset`` does (trl 1.16, ``scripts/utils.py``)."""
    import datasets

    blocks = source.blocks or ()
    if split != source.train_split:
        raise BadInput(
            f"a datasets: block has no split {split!r}; it has 'train' only.",
            "Set test_split_size to hold rows out for evaluation, or eval_strategy: 'no'.",
        )
    if not blocks:
        raise BadInput("the datasets: block is empty, expected at least one entry with a path.")
    parts = [_load_block(block, cache_dir, first) for block in blocks]
    fractions = [block.get("fraction") for block in blocks]
    known = [float(fraction) for fraction in fractions if fraction is not None]
    if known and first is not None:
        raise BadInput("fraction cannot be used where the datasets: block is read as a stream.")
    if known and len(known) < len(fractions):
        raise BadInput("fraction must be set for every entry of the datasets: block or for none.")
    if known:
        weights = [fraction / sum(known) for fraction in known]
        total = min(len(p) / w for p, w in zip(parts, weights, strict=True) if w > 0)
        parts = [p.select(range(round(w * total))) for p, w in zip(parts, weights, strict=True)]
    try:
        whole = datasets.concatenate_datasets(parts)
        return whole if first is None else whole.select(range(min(first, len(whole))))
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"the entries of the datasets: block have different columns: {first_line(error)}",
            "Select the same columns: in each entry.",
        ) from error


def _load_block(block: dict[str, Any], cache_dir: Path, first: int | None) -> Dataset:
    name = block.get("path")
    if not isinstance(name, str) or not name:
        raise BadInput(f"an entry of the datasets: block has no path: {block}.")
    split = block.get("split") or "train"
    if name in _BUILDER_NAMES and not Path(name).exists():
        paths = [Path(text).expanduser() for text in _block_paths(block)]
        for path in paths:
            if not path.exists() and "*" not in path.name:
                raise BadInput(f"data set {path} does not exist{_neighbour(path)}.")
        files = [p for p in paths if p.is_file()]
        extra = {k: block[k] for k in ("data_dir",) if block.get(k)}
        rows = _load_files(
            name,
            block.get("data_files"),
            files,
            split,
            cache_dir,
            shown=str(paths[0]),
            columns=extra,
            first=first,
        )
    else:
        rows = _load_one(name, block.get("name"), split, cache_dir, first)
    columns = block.get("columns")
    if columns:
        missing = [column for column in columns if column not in rows.column_names]
        if missing:
            raise BadInput(
                f"data set {name} has no column {missing[0]!r}, "
                f"it has {', '.join(rows.column_names)}{nearest(missing[0], rows.column_names)}."
            )
        rows = rows.select_columns(columns)
    return rows
