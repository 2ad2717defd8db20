"""Keeps the traces of a run beside its measurements, so that a resumed search knows what it knew.

Traces belong to versions of autotune and of the libraries that were traced; those of others are
not read. What could not be traced, or not in time, is not kept.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from autotune.core.job import Frozen
from autotune.core.rates import Rates
from autotune.core.traced_step import TracedStep
from autotune.predict.forecast import key_of
from autotune.predict.request import TraceRequest

TRACES_FILE = "traces.json.gz"


class Traces(Frozen):
    """What a run has traced.

    Args:
        versions: of autotune and of the libraries it was traced with.
        rates: what the device reaches, as predictions were made with.
        steps: the traced steps, by `name_of` their request.
    """

    schema_version: Literal[1] = 1
    versions: dict[str, str]
    rates: Rates
    steps: dict[str, TracedStep]


def name_of(request: TraceRequest) -> str:
    """Return a short name that is equal exactly when two requests are."""
    return hashlib.sha256(key_of(request).encode()).hexdigest()[:24]


def read_traces(folder: Path, versions: Mapping[str, str]) -> Traces | None:
    """Return the traces of a run; None when there are none, or they are damaged or of others.

    Args:
        folder: the run's.
        versions: of autotune and of the libraries that are installed now.
    """
    try:
        found = Traces.model_validate_json(gzip.decompress((folder / TRACES_FILE).read_bytes()))
    except (OSError, EOFError, ValidationError):
        return None
    return found if found.versions == dict(versions) else None


def write_traces(folder: Path, traces: Traces) -> None:
    """Keep the traces of a run; a folder that cannot be written to costs only them."""
    file = folder / TRACES_FILE
    temporary = file.with_name(f".{file.name}")
    try:
        temporary.write_bytes(gzip.compress(traces.model_dump_json().encode(), mtime=0))
        temporary.replace(file)
    except OSError:
        return
