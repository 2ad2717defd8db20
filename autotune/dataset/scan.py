"""Looks at what every column holds, over all rows, before anything is read into it.

Typed columns are answered from the table's schema and its null counts, for every row; columns of
free JSON are looked into, all rows up to ``SCANNED_ROWS`` and beyond that a stated sample with the
tail. It judges nothing: layouts and errors are made of what is found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from datasets import Dataset

#: Rows of a free-form column that are looked into; all of them when there are no more.
SCANNED_ROWS = 200_000
#: Rows at the end that belong to every sample: files that change shape usually do it late.
TAIL_ROWS = 10_000

#: What a column can hold, and how that is called in messages.
KIND_WORDS = {
    "text": "text",
    "messages": "a list of role/content messages",
    "turns": "a list of from/value turns",
    "message": "one role/content message",
    "turn": "one from/value turn",
    "objects": "a list of objects",
    "object": "an object",
    "ids": "a list of whole numbers",
    "numbers": "a list of numbers",
    "texts": "a list of texts",
    "flags": "a list of true and false",
    "lists": "a list of something else",
    "list": "an empty list",
    "flag": "true or false",
    "number": "a number",
    "other": "something else",
    "nothing": "nothing (null in every row)",
}


@dataclass(frozen=True)
class Seen:
    """Count rows of one sort and remember the first, counted from 0."""

    count: int
    first: int


@dataclass(frozen=True)
class Column:
    """Say what one column holds.

    Args:
        name: the column's name.
        kinds: rows by kind of value, nulls and empty lists left out; most frequent first.
        nulls: rows without a value.
        empties: rows with an empty list.
        keys: keys of the objects in it, from the first row that has some.
        scanned: rows looked at.
    """

    name: str
    kinds: dict[str, Seen]
    nulls: Seen | None
    empties: Seen | None
    keys: tuple[str, ...]
    scanned: int

    @property
    def kind(self) -> str:
        """The kind most rows have; ``list`` when all lists are empty, ``nothing`` when all null."""
        if self.kinds:
            return next(iter(self.kinds))
        return "list" if self.empties else "nothing"


def scan_columns(rows: Dataset, scanned_rows: int = SCANNED_ROWS) -> dict[str, Column]:
    """Return what every column of the table holds, by name.

    Args:
        rows: the split as loaded.
        scanned_rows: rows of a free-form column that are looked into; all when there are no more.
    """
    from datasets import Json

    found = {}
    for name, feature in rows.features.items():
        free = isinstance(feature, Json) or isinstance(getattr(feature, "feature", None), Json)
        found[name] = (
            _look_into(rows, name, scanned_rows) if free else _from_schema(rows, name, feature)
        )
    return found


def kind_of(value: Any) -> str:
    """Return the kind of one value; an empty list is ``list``."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, dict):
        return _object_kind(value, one=True)
    if isinstance(value, (list, tuple)):
        return _list_kind(value)
    return "other"


def _list_kind(value: Any) -> str:
    if not value:
        return "list"
    if all(isinstance(item, dict) for item in value):
        kinds = {_object_kind(item, one=False) for item in value}
        return kinds.pop() if len(kinds) == 1 else "objects"
    if all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return "ids"
    if all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in value):
        return "numbers"
    if all(isinstance(item, bool) for item in value):
        return "flags"
    return "texts" if all(isinstance(item, str) for item in value) else "lists"


def _object_kind(value: dict[str, Any], *, one: bool) -> str:
    if "role" in value:
        return "message" if one else "messages"
    if "from" in value and "value" in value:
        return "turn" if one else "turns"
    return "object" if one else "objects"


@dataclass
class _Tally:
    """Gather what a column holds while rows go by."""

    kinds: dict[str, Seen] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    def add(self, kind: str, row: int, count: int = 1) -> None:
        before = self.kinds.get(kind)
        self.kinds[kind] = (
            Seen(count, row) if before is None else Seen(before.count + count, before.first)
        )

    def column(self, name: str, scanned: int) -> Column:
        kinds = dict(self.kinds)
        nulls, empties = kinds.pop("null", None), kinds.pop("list", None)
        ordered = sorted(kinds.items(), key=lambda item: (-item[1].count, item[1].first))
        return Column(name, dict(ordered), nulls, empties, self.keys, scanned)


def _from_schema(rows: Dataset, name: str, feature: Any) -> Column:
    """Answer from the type of the column; only nulls and empty lists need the data."""
    kind, keys = _typed_kind(feature)
    tally = _Tally(keys=keys)
    start = 0
    for table in rows.select_columns([name]).with_format("arrow").iter(batch_size=10_000):
        column = table[name]
        valid = np.asarray(column.is_valid())
        _add_rows(tally, "null", ~valid, start)
        filled = valid
        if kind in _LIST_KINDS:
            lengths = np.asarray(column.combine_chunks().value_lengths().fill_null(-1))
            _add_rows(tally, "list", lengths == 0, start)
            filled = lengths > 0
        _add_rows(tally, kind, filled, start)
        start += len(valid)
    return tally.column(name, len(rows))


_LISTS_OF = {"number": "numbers", "text": "texts", "flag": "flags", "nothing": "list"}
_LIST_KINDS = ("messages", "turns", "objects", "ids", *_LISTS_OF.values(), "lists")


def _add_rows(tally: _Tally, kind: str, mask: Any, start: int) -> None:
    count = int(mask.sum())
    if count:
        tally.add(kind, start + int(mask.argmax()), count)


def _typed_kind(feature: Any) -> tuple[str, tuple[str, ...]]:
    from datasets import LargeList, List, Value

    if isinstance(feature, Value):
        return _scalar_kind(feature.dtype), ()
    if isinstance(feature, dict):
        return _object_kind(feature, one=True), tuple(feature)
    if isinstance(feature, (List, LargeList)):
        item = feature.feature
        if isinstance(item, dict):
            return _object_kind(item, one=False), tuple(item)
        if isinstance(item, Value):
            scalar = _scalar_kind(item.dtype)
            return "ids" if "int" in item.dtype else _LISTS_OF.get(scalar, "lists"), ()
        return "lists", ()
    return "other", ()


def _scalar_kind(dtype: str) -> str:
    if "string" in dtype:
        return "text"
    if dtype == "bool":
        return "flag"
    if dtype == "null":
        return "nothing"
    return "number" if any(word in dtype for word in ("int", "float", "decimal")) else "other"


def _look_into(rows: Dataset, name: str, scanned_rows: int) -> Column:
    tally = _Tally()
    scanned = 0
    for index, value in _sampled(rows.select_columns([name]), name, scanned_rows):
        scanned += 1
        kind = "null" if value is None else kind_of(value)
        tally.add(kind, index)
        if not tally.keys and kind in ("message", "turn", "object"):
            tally.keys = tuple(value)
        elif not tally.keys and kind in ("messages", "turns", "objects"):
            tally.keys = tuple(dict.fromkeys(key for item in value for key in item))
    return tally.column(name, scanned)


def _sampled(rows: Dataset, name: str, scanned_rows: int) -> Iterator[tuple[int, Any]]:
    """Yield (row, value) of all rows, or of an even sample and the tail."""
    indices = sampled_rows(len(rows), scanned_rows)
    sample = rows if len(indices) == len(rows) else rows.select(indices)
    position = 0
    for batch in sample.iter(batch_size=1000):
        for value in batch[name]:
            yield int(indices[position]), value
            position += 1


def sampled_rows(total: int, scanned_rows: int = SCANNED_ROWS) -> Any:
    """Return the rows looked into, ascending: all, or evenly spaced ones and the whole tail."""
    if total <= scanned_rows:
        return np.arange(total)
    tail = tail_of(scanned_rows)
    body = np.linspace(0, total - tail - 1, scanned_rows - tail).astype(np.int64)
    return np.concatenate((body, np.arange(total - tail, total)))


def tail_of(scanned_rows: int) -> int:
    """Return how many rows of a sample are the last ones of the data."""
    return min(TAIL_ROWS, scanned_rows // 2)
