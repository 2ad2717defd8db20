"""Everything a run's folder shows, rendered from its result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from autotune.core.errors import EnvironmentUnable
from autotune.core.result import Result
from autotune.emit import write_emitted, write_whole
from autotune.emit.dataset_file import write_dataset
from autotune.probe.documents import write_document
from autotune.report import REPORTERS

#: Reports every run leaves in its folder.
WRITTEN_REPORTS = ("csv", "html")
#: While the search goes on, making them takes no more than this share of the time.
_REPORTING_RATIO = 0.05


class RunFolder:
    """Writes everything a run's folder shows: the result, its reports, the files to train."""

    def __init__(self, out_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Take an existing folder.

        Args:
            out_dir: the folder.
            clock: seconds that pass.
        """
        self._dir = out_dir
        self._clock = clock
        self._next_reports = -math.inf

    def write(self, result: Result, *, over: bool) -> None:
        """Write a result, and reports of it unless there were some a moment ago.

        Args:
            result: what is known.
            over: whether the search is; then everything is written.

        Raises:
            EnvironmentUnable: the folder cannot be written to.
        """
        try:
            write_document(self._dir / "result.json", result)
            if result.best is not None:
                write_dataset(result, self._dir)
                write_emitted(result, self._dir)
            if over or self._clock() >= self._next_reports:
                self._write_reports(result)
        except OSError as error:
            raise EnvironmentUnable(
                f"{self._dir} cannot be written to: {error.strerror or error}. Every finished "
                "measurement is in it.",
                "Make room or make the folder writable, then go on with: "
                f"autotune run --resume --out {self._dir}",
            ) from error

    def _write_reports(self, result: Result) -> None:
        start = self._clock()
        for name in WRITTEN_REPORTS:
            write_whole(self._dir / REPORTERS[name].file_name, REPORTERS[name].render(result))
        end = self._clock()
        self._next_reports = end + (end - start) * (1.0 / _REPORTING_RATIO - 1.0)
