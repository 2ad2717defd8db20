"""What every test of the suite may rely on: no hub, a cache of its own, plain output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.warm import Shared

# Before anything imports a library that reads them; children inherit them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Measuring processes share the machine with the suite: waiting threads must not spin. Benches
# measure what a user would see, and set AUTOTUNE_BENCH (the Makefile does).
if "AUTOTUNE_BENCH" not in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One warm server for all modules that plant nothing in theirs: importing takes seconds."""
    from tests.support.warm import shared_server

    with shared_server(tmp_path_factory.mktemp("server")) as server:
        yield server
