"""Which builder of the data set library reads a file, by its ending; looks at names alone."""

from __future__ import annotations

from pathlib import Path

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
#: Endings of a compression; such a file is read by the ending before.
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")


def builder_of(path: Path) -> str | None:
    """Return the builder that reads a file; None when none does."""
    return BUILDERS.get(data_suffix(path))


def data_suffix(path: Path) -> str:
    """Return the ending before that of a compression, in lower case; "" without any."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
