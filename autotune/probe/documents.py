"""Writes and reads the documents that cross between autotune and its measuring processes.

A request and its reply are JSON files in the probe's own folder, written beside and renamed, so
that a reader sees a whole document or none. Logs are apart.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from autotune.core.errors import ToolFailure
from autotune.probe.protocol import SCHEMA_VERSION, Reply, Request

REQUEST_FILE = "request.json"
REPLY_FILE = "reply.json"
LOG_FILE = "log.txt"
_Doc = TypeVar("_Doc", bound=BaseModel)


def write_document(path: Path, document: BaseModel) -> None:
    """Write a document so that a reader sees all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(document.model_dump_json(indent=1), encoding="utf-8")
    temporary.replace(path)


def read_request(path: Path) -> Request:
    """Read a request file.

    Raises:
        ToolFailure: it is missing, damaged or of another schema version.
    """
    return _read(path, Request)


def read_reply(path: Path) -> Reply | None:
    """Read a reply file; None when the child ended without writing one.

    Raises:
        ToolFailure: it is damaged or of another schema version.
    """
    return _read(path, Reply) if path.is_file() else None


def _read(path: Path, model: type[_Doc]) -> _Doc:
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ToolFailure(
            f"{path} is not a document of schema version {SCHEMA_VERSION}: {error}",
            "Parent and child must run the same autotune.",
        ) from error
