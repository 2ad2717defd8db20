"""Does independent pieces of work in forked copies of this process, each as soon as one is free.

What a piece returns does not depend on which copy did it or when, so the answers are the same for
any number of copies. No copy outlives the work: they are ended when it is over or given up, and end
themselves when this process is gone. Knows nothing of traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from autotune.core.errors import ToolFailure

T = TypeVar("T")


def in_forks(work: Callable[[int], T], count: int, forks: int) -> Iterator[tuple[int, T]]:
    """Yield the number of every piece with what it came to, in the order they are done.

    Args:
        work: does one piece; what it returns can be pickled.
        count: pieces there are; their numbers are handed out from 0 on.
        forks: copies of this process at most; 1 does everything here, one after the other.

    Raises:
        ToolFailure: a copy ended before its piece was done.
    """
    forks = min(forks, count)
    if forks <= 1:
        yield from ((number, work(number)) for number in range(count))
        return
    with ExitStack() as stack:
        free = [_fork(work, stack) for _ in range(forks)]
        busy: dict[Connection, int] = {}
        left = iter(range(count))
        while True:
            for connection, number in zip(free, left):  # noqa: B905  (either may be over first)
                _send(connection, number)
                busy[connection] = number
            if not busy:
                return
            free = cast("list[Connection]", wait(list(busy)))
            for connection in free:
                yield busy.pop(connection), _received(connection)


def _fork(work: Callable[[int], T], stack: ExitStack) -> Connection:
    """Start a copy and return the connection to it; the stack ends it."""
    context = get_context("fork")
    here, there = context.Pipe()
    copy = context.Process(target=_copy, args=(work, here, there), daemon=True)
    copy.start()
    there.close()
    stack.callback(_end, copy, here)
    return here


def _copy(work: Callable[[int], T], parent: Connection, own: Connection) -> None:
    parent.close()
    while True:
        try:
            number = own.recv()
        except EOFError:  # the parent is gone, or needs no more
            return
        own.send(work(number))


def _send(connection: Connection, number: int) -> None:
    try:
        connection.send(number)
    except OSError as error:
        raise _died() from error


def _received(connection: Connection) -> Any:
    try:
        return connection.recv()
    except (EOFError, OSError) as error:  # the latter when it died before it had read its number
        raise _died() from error


def _died() -> ToolFailure:
    return ToolFailure(
        "a process that traces candidates ended by itself; memory may have run out.",
        "Look for what the system says of it, e.g. dmesg.",
    )


def _end(copy: BaseProcess, connection: Connection) -> None:
    connection.close()
    copy.kill()
    copy.join()
    copy.close()
