"""Forks measuring processes from a server that has imported the training libraries once.

The server's own side is probe/child/serve.py.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from autotune.core.errors import ToolFailure
from autotune.probe.cold import ColdLauncher
from autotune.probe.launcher import ENTRY, Launched, Lifeline, child_environment

#: Seconds after which something hangs: importing takes 5 s on a quiet machine and minutes on a disk
#: or a processor that is busy, forking a moment.
_READY_S, _FORK_S = 900.0, 300.0


class WarmServer:
    """Fork measuring processes from a server that has imported the training libraries once."""

    def __init__(self, log_dir: Path, env: Mapping[str, str] | None = None) -> None:
        """Start the server; `wait_ready` tells when it can fork.

        Args:
            log_dir: folder of the server's own log.
            env: variables beside the user's own environment.
        """
        self.log_file = log_dir / "server.txt"
        self._cold = ColdLauncher(env)
        self._lifeline = Lifeline()
        self._codes: dict[int, int] = {}
        self._started: list[int] = []
        self._unsafe: str | None = None
        self._buffer = b""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *[sys.executable, "-m", ENTRY, "--serve"],
                    str(self._lifeline.read_fd),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(env),
                pass_fds=(self._lifeline.read_fd,),
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def wait_ready(
        self, timeout_s: float = _READY_S, tick: Callable[[float], None] | None = None
    ) -> str:
        """Wait until the libraries are imported.

        Args:
            timeout_s: longest wait in seconds.
            tick: called about ten times a second with the seconds passed.

        Returns:
            Why forking from the server would be unsafe; empty when it is safe.

        Raises:
            ToolFailure: it ended or did not become ready in time.
        """
        start = time.monotonic()
        while self._unsafe is None:
            if tick is not None:
                tick(time.monotonic() - start)
            if time.monotonic() - start > timeout_s:
                raise ToolFailure(
                    f"the measuring process was not ready after {timeout_s:.0f} s.",
                    f"Its log is {self.log_file}.",
                )
            self._listen(0.1)
        return self._unsafe

    def preload(self, model_type: str) -> None:
        """Have the server import a model's code before it forks."""
        self._order({"preload": model_type})

    def launch(self, request: Path, env: Mapping[str, str] | None = None) -> Launched:
        """Fork a child on the request; one with variables of its own starts from scratch."""
        if env:
            return self._cold.launch(request, env)
        self.wait_ready()
        self._started.clear()
        self._order({"request": str(request)})
        end = time.monotonic() + _FORK_S
        while not self._started:
            if time.monotonic() > end:
                raise ToolFailure(f"the measuring process forked no child within {_FORK_S:.0f} s.")
            self._listen(0.1)
        return _WarmProcess(self, self._started.pop())

    def _order(self, message: dict[str, str]) -> None:
        try:
            self._in.write((json.dumps(message) + "\n").encode())
            self._in.flush()
        except OSError as error:
            raise self._gone() from error

    def _gone(self) -> ToolFailure:
        tail = ""
        if self.log_file.is_file():
            lines = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
            tail = " / ".join(lines[-3:])
        return ToolFailure(
            f"the measuring process ended by itself: {tail or 'it left no message'}",
            f"Its log is {self.log_file}.",
        )

    def _listen(self, wait_s: float) -> None:
        if not self._selector.select(wait_s):
            return
        data = os.read(self._out.fileno(), 65536)
        if not data:
            raise self._gone()
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ended" in message:
                self._codes[message["ended"]] = message["code"]
            elif "started" in message:
                self._started.append(message["started"])
            elif "ready" in message:
                self._unsafe = message["unsafe"]

    def code_of(self, pid: int, wait_s: float) -> int | None:
        """Return a child's exit code once the server reported it."""
        if pid not in self._codes:
            self._listen(wait_s)
        return self._codes.pop(pid, None)

    def close(self) -> None:
        """End the server and everything it forked."""
        for stream in (self._in, self._out):
            with suppress(OSError):  # an order that a dead server never took
                stream.close()
        self._selector.close()
        try:
            self._process.wait(timeout=3.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._cold.close()
        self._lifeline.close()


class _WarmProcess:
    def __init__(self, server: WarmServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self, wait_s: float) -> int | None:
        return self._server.code_of(self.pid, wait_s)
