"""Work spread over forked copies of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from autotune.core.errors import ToolFailure
from autotune.predict.forks import in_forks


@pytest.mark.parametrize("forks", [1, 2, 3, 20])
def test_every_piece_is_done_once_by_any_number_of_copies(forks: int) -> None:
    found = list(in_forks(lambda number: number * number, 7, forks))
    assert [(n, n * n) for n in range(7)] == sorted(found)


def test_no_piece_needs_no_copy() -> None:
    assert [] == list(in_forks(lambda number: number, 0, 4))


def test_one_copy_is_this_process_and_more_are_not() -> None:
    assert {os.getpid()} == {pid for _, pid in in_forks(lambda _: os.getpid(), 3, 1)}
    assert os.getpid() not in {pid for _, pid in in_forks(lambda _: os.getpid(), 4, 2)}


def test_a_copy_that_dies_is_said_and_none_is_left() -> None:
    def die(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    before = set(psutil.Process().children())
    with pytest.raises(ToolFailure, match="ended by itself"):
        list(in_forks(die, 4, 2))
    assert set() == set(psutil.Process().children()) - before


def test_a_copy_that_dies_between_two_pieces_is_said_too() -> None:
    before = set(psutil.Process().children())
    pieces = in_forks(lambda _: os.getpid(), 100, 2)
    _, pid = next(pieces)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ToolFailure, match="ended by itself"):
        list(pieces)
    assert set() == set(psutil.Process().children()) - before


def test_work_that_is_given_up_leaves_no_copy() -> None:
    before = set(psutil.Process().children())
    pieces = in_forks(lambda number: number, 100, 2)
    next(pieces)
    assert 2 == len(set(psutil.Process().children()) - before)
    pieces.close()  # type: ignore[attr-defined]
    assert set() == set(psutil.Process().children()) - before


def test_copies_end_when_what_forked_them_is_killed() -> None:
    endless = (
        "import os; from autotune.predict.forks import in_forks\n"
        "for _, pid in in_forks(lambda _: os.getpid(), 10**9, 2): print(pid, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", endless], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        copies = psutil.Process(parent.pid).children()
        parent.kill()
    assert 2 == len(copies)
    assert [] == psutil.wait_procs(copies, timeout=120)[1]
