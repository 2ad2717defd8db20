"""The warm server: imports the training libraries once, then forks one child per request.

It never opens CUDA (driver_guard.py) and never enters an OpenMP region: either would poison its
forks. One JSON line in starts a child; one JSON line out says that it ended, and how.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import psutil

from autotune.probe.child.driver_guard import DriverAsked, DriverGuard, opened_file
from autotune.probe.child.lifeline import adopt_orphans, die_with_parent, watch


def serve(lifeline: int, work: Callable[[Path], int], hidden: list[str]) -> NoReturn:
    """Answer requests until the parent closes its end.

    Args:
        lifeline: reading end of the parent's pipe.
        work: runs one request in the forked child and returns its exit code.
        hidden: optional packages that asked for the device when they were imported before.
    """
    adopt_orphans()
    guard = DriverGuard(hidden)
    try:
        import_libraries()
    except DriverAsked:
        _start_anew(guard)
    if guard.asked_by:  # whatever asked caught the refusal and took it for an answer
        _start_anew(guard)
    guard.show()
    gc.collect()
    gc.freeze()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    selector.register(lifeline, selectors.EVENT_READ)
    tell(ready=True, pid=os.getpid(), unsafe=_why_unsafe(guard))
    running: set[int] = set()
    buffer = b""
    while True:
        for key, _ in selector.select():
            if key.fd == wake_read:
                os.read(wake_read, 4096)
                _reap(running)
                continue
            data = os.read(key.fd, 65536)
            if not data:
                _end_all(running)
                os._exit(0)  # a parent that is gone must not wait for torch to be torn down
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "preload" in order:
                    preload(order["preload"], guard)
                else:
                    pid = _fork(Path(order["request"]), lifeline, work, guard)
                    running.add(pid)
                    tell(started=pid)


def _start_anew(guard: DriverGuard) -> NoReturn:
    """Begin again without the package that asked for the device; process and pipes stay."""
    os.execv(sys.executable, [*sys.orig_argv, guard.asked_by])


def _why_unsafe(guard: DriverGuard) -> str:
    """Return why forking from here would give broken children; empty when it is safe."""
    import torch

    if guard.opened_by:
        return f"{guard.opened_by} opened CUDA while it was imported"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "a library opened CUDA while it was imported"
    if file := opened_file():
        return f"a library opened {file} while it was imported"
    if threading.active_count() > 1:
        names = ", ".join(t.name for t in threading.enumerate()[1:])
        return f"libraries started Python threads while they were imported ({names})"
    return ""


def tell(**message: Any) -> None:
    """Write one line to the parent."""
    os.write(1, (json.dumps(message) + "\n").encode())


def import_libraries() -> None:
    """Import what every probe needs; optional packages are left to the child that needs them."""
    for name in ("torch", "transformers", "datasets", "peft", "trl"):
        import_module(name)
    import trl

    # lazy attributes: load them before forking
    from trl import DPOTrainer, KTOTrainer, RewardTrainer, SFTTrainer  # noqa: F401

    for name in (
        "torch.utils.checkpoint",
        "torch.utils._python_dispatch",
        "torch._dynamo",
        "accelerate",
        "autotune.probe.child.prepare",
        "autotune.probe.child.probe",
        "autotune.training.trainer",
        "autotune.dataset.prepare",
    ):
        import_module(name)
    assert trl is not None


def preload(model_type: str, guard: DriverGuard) -> None:
    """Import a model's code before forking.

    A name transformers does not know is left alone, and code that asks for the device (some models
    import kernels of their own) is left to the children.

    Args:
        model_type: transformers' ``model_type``, e.g. ``llama``.
        guard: of this server.
    """
    module = model_type.replace("-", "_")
    before = set(sys.modules)
    with suppress(ImportError, DriverAsked):
        import_module(f"transformers.models.{module}.modeling_{module}")
    if guard.asked_by:
        for name in set(sys.modules) - before:
            del sys.modules[name]
        guard.asked_by = ""
    gc.collect()
    gc.freeze()


def _fork(request: Path, lifeline: int, work: Callable[[Path], int], guard: DriverGuard) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(request.parent / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        watch(lifeline)
        guard.lift()
        code = work(request)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _reap(running: set[int]) -> None:
    """Report every child that ended, and end what it left behind."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            running.discard(pid)
            _kill_orphans(running)
            tell(ended=pid, code=os.waitstatus_to_exitcode(status))


def _kill_orphans(running: set[int]) -> None:
    for child in psutil.Process().children():
        if child.pid not in running:
            _kill_tree(child.pid)


def _end_all(running: set[int]) -> None:
    for pid in list(running):
        _kill_tree(pid)
    _kill_orphans(set())


def _kill_tree(pid: int) -> None:
    try:
        family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
