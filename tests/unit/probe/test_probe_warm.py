"""What is left of a warm server that ended by itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from autotune.core.errors import ToolFailure
from autotune.probe.warm import WarmServer


def test_an_order_to_a_dead_server_says_so_and_closing_says_nothing_more(tmp_path: Path) -> None:
    server = WarmServer(tmp_path)
    os.kill(server.pid, signal.SIGKILL)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ToolFailure, match="ended by itself"):
        server.preload("llama")
    before = len(list(Path("/proc/self/fd").iterdir()))
    server.close()
    assert len(list(Path("/proc/self/fd").iterdir())) < before
