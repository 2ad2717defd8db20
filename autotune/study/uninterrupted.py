"""Lets a short piece of work finish before a signal is heard: keeping what was just measured."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back until the block has ended, then let them act.

    A measurement that is half kept, or a library half imported when its first use is cut off, is
    worse than a second's delay. Outside the main thread nothing is held: signals act there. What
    is ignored (Ctrl-C in a job in the background, SIGHUP under nohup) stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    acting = [n for n in _HELD if signal.getsignal(n) is not signal.SIG_IGN]
    before = {n: signal.signal(n, lambda *call: heard.append(call)) for n in acting}
    try:
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for number, frame in heard[:1]:
            first = before[signal.Signals(number)]
            if callable(first):
                first(number, frame)
            elif first is signal.SIG_DFL:
                signal.raise_signal(number)
