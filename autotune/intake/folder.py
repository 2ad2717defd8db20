"""Makes or opens a run's folder; never overwrites one unasked."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from autotune.core.errors import BadInput
from autotune.core.job import Job
from autotune.intake.request import REQUEST_FILE, Request
from autotune.study.ownership import is_held

#: Parent of the folders of runs without ``--out``.
RUNS_DIR = "autotune-runs"


def check_folder(request: Request, job: Job) -> Path:
    """Return where a run's folder is to be; nothing is made or removed.

    Raises:
        BadInput: it is there and neither resume nor force was asked for, or cannot be written to.
    """
    if request.out is not None:
        out_dir = Path(request.out).expanduser()
    else:
        name = Path(job.model).name.replace("/", "-")
        out_dir = Path(RUNS_DIR) / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    if request.resume:
        if request.out is None or not (out_dir / "trials").is_dir():
            raise BadInput(
                f"there is no run to resume at {out_dir}.", "Name its folder with --out."
            )
        return out_dir
    if out_dir.exists() and not out_dir.is_dir():
        raise BadInput(f"{out_dir} is a file, expected a folder.", "Choose another --out.")
    if out_dir.exists() and any(out_dir.iterdir()):
        _check_replaceable(out_dir, force=request.force)
    _check_writable(out_dir)
    return out_dir


def open_folder(request: Request, job: Job) -> Path:
    """Make the run's folder, or open it to resume.

    Raises:
        BadInput: it exists and neither resume nor force was asked for, or cannot be made.
    """
    out_dir = check_folder(request, job)
    if request.resume:
        return out_dir
    if out_dir.exists() and any(out_dir.iterdir()):
        shutil.rmtree(_replaced(out_dir), ignore_errors=True)
        out_dir.rename(_replaced(out_dir))
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out_dir, error) from error
    return out_dir


def _check_replaceable(out_dir: Path, *, force: bool) -> None:
    """Check that what is in a folder may be replaced.

    Raises:
        BadInput: nobody asked for it, it is not a run's, or somebody is at work there.
    """
    is_run = (out_dir / REQUEST_FILE).is_file() or (out_dir / "trials").is_dir()
    if not force:
        what = "holds a run" if is_run else "exists and is not empty"
        raise BadInput(
            f"{out_dir} {what}.", "Use --resume to go on, --force to replace it, or --out."
        )
    if not is_run:
        raise BadInput(
            f"{out_dir} is not a folder autotune wrote, so --force does not replace it.",
            "Choose another --out.",
        )
    if is_held(out_dir):
        raise BadInput(
            f"another autotune is working in {out_dir}.",
            "Wait for it, or choose another --out.",
        )


def _check_writable(out_dir: Path) -> None:
    """Check that files can be made in a folder, or in the nearest one above it that is there."""
    there = next(folder for folder in (out_dir, *out_dir.absolute().parents) if folder.exists())
    try:
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError as error:
        raise _unwritable(out_dir, error) from error


def _unwritable(out_dir: Path, error: OSError) -> BadInput:
    return BadInput(
        f"the folder {out_dir} cannot be made or written to: {error}.", "Choose another --out."
    )


def discard_folder(out_dir: Path) -> None:
    """Remove a folder in which nothing was measured; a run it was to replace comes back.

    Args:
        out_dir: a folder made by `open_folder`.
    """
    shutil.rmtree(out_dir, ignore_errors=True)
    if _replaced(out_dir).is_dir():
        _replaced(out_dir).rename(out_dir)
        return
    if out_dir.parent.name == RUNS_DIR and not any(out_dir.parent.iterdir()):
        out_dir.parent.rmdir()


def drop_replaced(out_dir: Path) -> None:
    """Remove the run that ``--force`` replaced, once there is a new one.

    Args:
        out_dir: a folder made by `open_folder`.
    """
    shutil.rmtree(_replaced(out_dir), ignore_errors=True)


def _replaced(out_dir: Path) -> Path:
    """Return where a run waits while the one that replaces it has measured nothing yet."""
    return out_dir.with_name(f".{out_dir.name}.replaced")
