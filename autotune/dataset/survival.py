"""Follows every text of the rows into the token ids and labels that TRL made of them.

The one place that knows whether a text is trained on: it decodes what is trained and looks for what
was given, in every row, before anything is cut. What to say of it is in ``unlearned``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.core.errors import ToolFailure
from autotune.dataset.leaves import NO_TEXT, Leaf, Place, leaves_of
from autotune.dataset.measure import IGNORED
from autotune.dataset.traces import Fate, Spelled

if TYPE_CHECKING:
    from datasets import Dataset

#: Rows after which a place whose texts no tokenizer ever brought back is not tried again.
_TRIES = 64
_MADE = "made:"
#: Fates of an answer that is among the tokens, beside those of `Fate`.
_LEARNED, _MASKED = "learned", "masked"


@dataclass(frozen=True)
class Trace:
    """Count the rows in which the texts of one place had one fate.

    Args:
        place: where the texts stand.
        fate: ``changed``, ``partly``, ``lost``, ``masked`` (among the tokens, without a label), or
            ``learned``, which is only told where a mask makes it a question.
        rows: rows in which it was so.
        first: the first of them, counted from 0.
        characters: characters of those texts.
    """

    place: Place
    fate: str
    rows: int
    first: int
    characters: int


def follow(
    given: Dataset,
    made: Dataset,
    *,
    read: frozenset[str],
    sides: tuple[tuple[str, ...], ...],
    tokenizer: Any,
    workers: int | None,
) -> tuple[Trace, ...]:
    """Return what became of the rows' texts where it is not that all is trained on.

    Args:
        given: the rows as given.
        made: what TRL made of them, uncut, in the same order; of a pair for KTO two rows.
        read: columns of the layout.
        sides: columns of ``made`` whose ids in a row make one sequence, for every sequence.
        tokenizer: tokenizer or processor TRL used.
        workers: processes to use, None for this one.

    Raises:
        ToolFailure: the rows made are not those given.
    """
    texts = [n for n, kind in given.features.items() if n not in NO_TEXT and _may_hold_text(kind)]
    if not texts:
        return ()
    if len(made) == 2 * len(given):
        made, sides = _paired(made, sides[0])
    if len(made) != len(given):
        raise ToolFailure(f"{len(given)} rows became {len(made)}: please report this.")
    ids = [
        n for n in dict.fromkeys((*(c for s in sides for c in s), "labels")) if n in _names(made)
    ]
    from datasets import concatenate_datasets

    both = concatenate_datasets(
        [
            given.select_columns(texts),
            made.select_columns(ids).rename_columns({name: _MADE + name for name in ids}),
        ],
        axis=1,
    )
    marks = both.map(
        _Follow(read, sides, tokenizer),
        batched=True,
        with_indices=True,
        remove_columns=both.column_names,
        features=_features(),
        num_proc=workers,
        desc="Following the texts",
    )
    return _counted(marks)


@dataclass
class _Follow:
    """Mark, batch by batch, what became of the texts; one per worker."""

    read: frozenset[str]
    sides: tuple[tuple[str, ...], ...]
    tokenizer: Any
    _known: set[Place] = field(default_factory=set)
    _tried: dict[Place, int] = field(default_factory=dict)

    def __call__(self, batch: Mapping[str, list[Any]], index: list[int]) -> dict[str, list[Any]]:
        names = [name for name in batch if not name.startswith(_MADE)]
        marks: dict[str, list[Any]] = {"place": [], "fate": [], "row": [], "characters": []}
        for at, number in enumerate(index):
            row = {name: batch[name][at] for name in names}
            made = {n.removeprefix(_MADE): batch[n][at] for n in batch if n not in row}
            for (place, fate), characters in self._row(row, made).items():
                marks["place"].append(list(place))
                marks["fate"].append(fate)
                marks["row"].append(number)
                marks["characters"].append(characters)
        return marks

    def _row(self, row: Mapping[str, Any], made: Mapping[str, Any]) -> dict[tuple[Place, str], int]:
        spelled = Spelled("\0".join(self._spell(self._ids(made, side)) for side in self.sides))
        marks: dict[tuple[Place, str], int] = {}
        fates: dict[Place, list[Fate]] = {}
        whole: list[Leaf] = []
        for leaf in leaves_of(row, self.read):
            fate = self._fate(leaf, spelled)
            fates.setdefault(leaf.place, []).append(fate)
            if fate is not Fate.WHOLE:
                worst = (leaf.place, fate.value)
                marks[worst] = marks.get(worst, 0) + len(leaf.text)
            elif leaf.place.is_answer and leaf.place.column in self.read:
                whole.append(leaf)
        for place, found in fates.items():  # some of it there, some not: partly
            if (place, Fate.LOST.value) in marks and set(found) != {Fate.LOST}:
                lost = marks.pop((place, Fate.LOST.value))
                marks[place, Fate.PARTLY.value] = marks.get((place, Fate.PARTLY.value), 0) + lost
        marks |= self._labelled(whole, made)
        return marks

    def _fate(self, leaf: Leaf, spelled: Spelled) -> Fate:
        tried = self._tried.get(leaf.place, 0)
        tries = leaf.place.column in self.read and tried < _TRIES
        fate = spelled.fate_of(leaf.text, self._as_tokens if tries else None)
        if fate in (Fate.PARTLY, Fate.LOST):
            self._tried[leaf.place] = tried + 1
        return fate

    def _labelled(
        self, leaves: list[Leaf], made: Mapping[str, Any]
    ) -> dict[tuple[Place, str], int]:
        """Mark answers that no label is on, until one of their place is known to be learned."""
        labels = made.get("labels")
        asked = [leaf for leaf in leaves if leaf.place not in self._known]
        if labels is None or not asked or IGNORED not in labels:
            return {}
        spelled = Spelled(self._spell([one for one in labels if one != IGNORED]))
        marks: dict[tuple[Place, str], int] = {}
        for leaf in asked:
            if spelled.fate_of(leaf.text, self._as_tokens) is Fate.LOST:
                marks[leaf.place, _MASKED] = marks.get((leaf.place, _MASKED), 0) + len(leaf.text)
            else:
                self._known.add(leaf.place)
                marks[leaf.place, _LEARNED] = len(leaf.text)
        return marks

    @staticmethod
    def _ids(made: Mapping[str, Any], side: tuple[str, ...]) -> list[int]:
        return [one for name in side for one in made[name]]

    def _spell(self, ids: list[int]) -> str:
        tokenizer = getattr(self.tokenizer, "tokenizer", self.tokenizer)
        if tokenizer.is_fast:  # without the Python wrapper: five times as fast
            return str(tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False))
        return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def _as_tokens(self, text: str) -> str:
        tokenizer = getattr(self.tokenizer, "tokenizer", self.tokenizer)
        return self._spell(tokenizer.encode(text, add_special_tokens=False, verbose=False))


def _paired(made: Dataset, side: tuple[str, ...]) -> tuple[Dataset, tuple[tuple[str, ...], ...]]:
    """Put the two rows KTO makes of a pair side by side.

    TRL unpairs in batches: all chosen of one, then all rejected (``data_utils._unpair_row``).
    """
    from datasets import concatenate_datasets

    label = np.asarray(made.with_format("numpy")["label"][:], dtype=bool)
    chosen, rejected = np.flatnonzero(label), np.flatnonzero(~label)
    answer = side[-1]
    other = made.select(rejected).select_columns([answer]).rename_column(answer, "other")
    whole = concatenate_datasets([made.select(chosen).select_columns(list(side)), other], axis=1)
    return whole, (side, (*side[:-1], "other"))


def _names(rows: Dataset) -> list[str]:
    return list(rows.column_names)


def _may_hold_text(kind: Any) -> bool:
    """Return whether values of this type can have text inside; pictures and sound have none."""
    from datasets import Json, LargeList, List, Value

    if isinstance(kind, Value):
        return "string" in kind.dtype
    if isinstance(kind, (List, LargeList)):
        return _may_hold_text(kind.feature)
    if isinstance(kind, dict):
        return any(map(_may_hold_text, kind.values()))
    return isinstance(kind, Json)


def _features() -> Any:
    from datasets import Features, List, Value

    whole = Value("int64")
    return Features(
        {"place": List(Value("string")), "fate": Value("string"), "row": whole, "characters": whole}
    )


def _counted(marks: Dataset) -> tuple[Trace, ...]:
    """Sum marks up by place and fate, first seen first."""
    found: dict[tuple[Place, str], tuple[int, int, int]] = {}
    for batch in marks.iter(batch_size=10_000):
        for place, fate, row, characters in zip(*(batch[n] for n in marks.features), strict=True):
            key = (Place(*place), fate)
            rows, first, before = found.get(key, (0, row, 0))
            found[key] = (rows + 1, first, before + characters)
    return tuple(Trace(*key, *counts) for key, counts in found.items())
