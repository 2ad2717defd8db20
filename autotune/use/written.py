"""Everything a run's folder shows, rendered from its result."""

from __future__ import annotations

from pathlib import Path

from autotune.core.errors import EnvironmentUnable
from autotune.core.result import Result
from autotune.emit import write_emitted, write_whole
from autotune.emit.dataset_file import write_dataset
from autotune.probe.documents import write_document
from autotune.report import REPORTERS

#: Reports every run leaves in its folder.
WRITTEN_REPORTS = ("csv", "html")


def write_run(result: Result, out_dir: Path) -> None:
    """Write everything a run's folder shows: the result, its page and table, the files to train.

    Raises:
        EnvironmentUnable: the folder cannot be written to.
    """
    try:
        write_document(out_dir / "result.json", result)
        for name in WRITTEN_REPORTS:
            write_whole(out_dir / REPORTERS[name].file_name, REPORTERS[name].render(result))
        if result.best is not None:
            write_dataset(result, out_dir)
            write_emitted(result, out_dir)
    except OSError as error:
        raise EnvironmentUnable(
            f"{out_dir} cannot be written to: {error.strerror or error}. Every finished "
            "measurement is in it.",
            "Make room or make the folder writable, then go on with: "
            f"autotune run --resume --out {out_dir}",
        ) from error
