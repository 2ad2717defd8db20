"""Shows how many rows are prepared: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from autotune.core.units import show_duration
from autotune.use.watcher import Watcher

#: What the measuring process calls its stations, for people.
_WORDS = {
    "load": "loading rows",
    "recognise": "looking at columns",
    "read": "reading rows",
    "convert": "converting rows",
    "write": "writing rows",
    "tokenise": "tokenising rows",
    "measure": "measuring rows",
    "follow": "looking for every text in the tokens",
    "save": "saving rows",
    "trace": "tracing steps",
}
#: Least seconds between two lines where there is no terminal.
_BETWEEN_LINES_S = 10.0


class RowProgress:
    """Remember how far preparation is, and show it."""

    def __init__(self, console: Console) -> None:
        """Take the console of progress."""
        self._console = console
        self._what, self._done, self._total = "", 0, 0
        self._next = 0.0

    def note(self, what: str, done: int, total: int, *, said: bool) -> None:
        """Take in how far it is.

        Args:
            what: the station, as the measuring process calls it.
            done: rows done.
            total: rows there are; 0 when that is not known.
            said: say it in a line, every few seconds from the first few on.
        """
        if _WORDS.get(what, what) != self._what:
            self._next = time.monotonic() + _BETWEEN_LINES_S
        self._what, self._done, self._total = _WORDS.get(what, what), done, total
        if said and total and time.monotonic() >= self._next:
            self._next = time.monotonic() + _BETWEEN_LINES_S
            self._console.print(f"  {self._words()}", markup=False)

    def drawn(self) -> list[Any]:
        """Return the bar, nothing while there is nothing to count."""
        if not self._total:
            return []
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._total, completed=self._done, width=24)
        grid.add_row(" ", bar, Text(self._words()))
        return [grid]

    def _words(self) -> str:
        return f"{self._what} {self._done:,} of {self._total:,}"


class RowsView(Watcher):
    """Watch a use case that prepares rows: what it does now, since when, and how far it is."""

    def __init__(self, console: Console) -> None:
        """Take the console of progress; it decides between a live view and lines."""
        self._console = console
        self._rows = RowProgress(console)
        self._now, self._seconds = "", 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Start drawing when there is a terminal."""
        if self._console.is_terminal:
            self._live = Live(
                self, console=self._console, refresh_per_second=8, transient=True
            ).__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop drawing and leave nothing behind."""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def begin(self, text: str) -> None:
        """Show from now on that this is done; what was counted before is over."""
        self._now, self._seconds = text, 0.0
        self._rows = RowProgress(self._console)

    def stage(self, text: str) -> None:
        """Say what begins."""
        self.begin(text)
        if self._live is None:
            self._console.print(f"{text} ...", markup=False)

    def tick(self, seconds: float) -> None:
        """Note how long it has been running."""
        self._seconds = seconds

    def progress(self, what: str, done: int, total: int) -> None:
        """Note how many rows are prepared."""
        self._rows.note(what, done, total, said=self._live is None)

    def __rich__(self) -> Any:
        """Return the live picture."""
        line = Text(f" {self._now} ({show_duration(max(self._seconds, 0.01))})")
        return Group(Spinner("dots", text=line), *self._rows.drawn())
