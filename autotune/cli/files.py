"""Files a command was told to write: checked before the work, written whole after it."""

from __future__ import annotations

from pathlib import Path


def new_file(out: str, *, force: bool) -> Path:
    """Return the file to write, checked before any work.

    Args:
        out: what the user named.
        force: replace it when it exists.

    Raises:
        BadInput: it exists and may not be replaced, is a folder, or its folder cannot be made.
    """
    from autotune.core.errors import BadInput

    file = Path(out).expanduser()
    if file.is_dir():
        raise BadInput(f"{file} is a folder.", "Name the file to write.")
    if file.exists() and not force:
        raise BadInput(f"{file} exists.", "Use --force to replace it, or another --out.")
    _make_folder(file)
    return file


def write_text(out: str, text: str, *, force: bool) -> Path:
    """Write a text made from a result.

    Args:
        out: what the user named.
        text: the content.
        force: replace it when it exists.

    Raises:
        BadInput: it exists and may not be replaced, or cannot be written.
    """
    from autotune.core.errors import BadInput
    from autotune.emit import write_whole

    file = new_file(out, force=force)
    try:
        write_whole(file, text)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error}") from error
    return file


def _make_folder(file: Path) -> None:
    from autotune.core.errors import BadInput

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"the folder {file.parent} cannot be made: {error}") from error
