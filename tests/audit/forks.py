"""A process that has imported the training libraries once and forks itself for every call.

Importing takes seconds, a call about one. Nothing of autotune's own measuring processes is in
between: what a call runs sees TRL as ``trl sft`` and its kin leave it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

#: What every call needs; lazy attributes of trl are loaded by naming them.
_LIBRARIES = ("torch", "transformers", "datasets", "peft", "trl", "bitsandbytes")
_TRAINERS = ("SFTTrainer", "DPOTrainer", "RewardTrainer", "KTOTrainer")
_POLL_SECONDS = 0.02


class Forks:
    """Call functions in forks of one warm process, one after the other."""

    def __init__(self, folder: Path) -> None:
        """Start the process.

        Args:
            folder: where requests, answers and logs go; created.
        """
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._calls = 0
        env = {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "HF_HOME": str(folder / "hf")}
        with (folder / "server.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.audit.forks"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **env},
            )

    def __enter__(self) -> Self:
        """Return itself; leaving the block ends the process."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process; a call that still runs ends with it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10.0)
        self._process.stdout.close()

    def call(self, function: str, request: str, deadline_s: float) -> str:
        """Return what a function answers to a document.

        Args:
            function: ``module:name``; takes a JSON text and returns one.
            request: the document.
            deadline_s: seconds after which the call is ended.

        Raises:
            RuntimeError: the call ended without an answer; the message has the end of its log.
        """
        self._calls += 1
        asked = self._folder / f"{self._calls:04d}.json"
        answer, log = asked.with_suffix(".answer"), asked.with_suffix(".txt")
        asked.write_text(request, "utf-8")
        order = {"function": function, "deadline_s": deadline_s}
        order |= {"asked": str(asked), "answer": str(answer), "log": str(log)}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        ended = self._process.stdout.readline().strip()
        if not answer.is_file():
            said = log.read_text("utf-8", "replace").strip() if log.is_file() else ""
            raise RuntimeError(f"{function} {ended or 'lost its server'}: {said[-2000:]}")
        return answer.read_text("utf-8")


def _serve() -> None:
    for name in _LIBRARIES:
        import_module(name)
    for name in _TRAINERS:
        getattr(sys.modules["trl"], name)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            _answer(order)
        print(_ended(pid, order["deadline_s"]), flush=True)


def _answer(order: dict[str, str]) -> None:
    """Answer one order in the forked process; never returns."""
    code = 1
    try:
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for fd in (1, 2):
            os.dup2(log, fd)
        module, _, name = order["function"].partition(":")
        asked = Path(order["asked"]).read_text("utf-8")
        said = getattr(import_module(module), name)(asked)
        Path(order["answer"]).write_text(said, "utf-8")
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        sys.stderr.flush()
        os._exit(code)


def _ended(pid: int, deadline_s: float) -> str:
    """Wait for a fork and end what it left behind; return how it ended."""
    until = time.monotonic() + deadline_s
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _end_group(pid)
            return f"ended with {os.waitstatus_to_exitcode(status)}"
        if time.monotonic() > until:
            _end_group(pid)
            os.waitpid(pid, 0)
            return f"took longer than {deadline_s:.0f} s"
        time.sleep(_POLL_SECONDS)


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    _serve()
