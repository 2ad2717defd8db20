"""Tells how far preparation has come, in rows, while the data set library maps over them.

The library draws bars where it maps; for as long as the block lasts they are told to us instead of
being drawn. Says nothing of how long is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

#: Told what is being done, how many rows are done, and how many there are (0: not known).
Progress: TypeAlias = Callable[[str, int, int], None]


def say_nothing(what: str, done: int, total: int) -> None:
    """Be the progress of those who do not listen."""


@contextmanager
def bars_told(tell: Progress, what: str) -> Iterator[None]:
    """Tell the rows of every bar the data set library would draw inside the block.

    Args:
        tell: told at every step of a bar; it limits itself to what it can use.
        what: what is being done, in a word.
    """
    import datasets.arrow_dataset as library

    drawn = library.hf_tqdm

    class Told(drawn):  # type: ignore[misc, valid-type]
        """A bar that is told instead of drawn; workers report to the one of their parent."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.told = int(kwargs.get("initial") or 0)
            self.rows = int(kwargs.get("total") or 0)
            super().__init__(*args, **{**kwargs, "disable": True})
            tell(what, self.told, self.rows)

        def update(self, n: float | None = 1) -> bool | None:
            self.told += int(n or 0)
            tell(what, self.told, self.rows)
            return None

    library.hf_tqdm = Told
    try:
        yield
    finally:
        library.hf_tqdm = drawn
