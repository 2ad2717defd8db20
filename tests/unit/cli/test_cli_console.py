"""Streams as shells hand them over: a reader that goes away, a stream that is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest

from autotune.cli.console import say, say_error, stderr, stdout


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A stream whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream


@pytest.mark.parametrize(
    "write", [lambda: say("the result"), lambda: stdout().print("the result")], ids=["say", "rich"]
)
def test_a_result_nobody_reads_is_no_fault(
    write: Callable[[], None], unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", unread)
    for _ in range(3):
        write()


def test_progress_nobody_reads_ends_the_work(
    unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", unread)
    with pytest.raises(BrokenPipeError):
        stderr().print("measuring ...")
    os.dup2(os.open(os.devnull, os.O_WRONLY), unread.fileno())  # its buffer is still full


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_cost_nothing(closed: tuple[int, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "spaces", "list"],
        capture_output=True, text=True, timeout=300, check=False,
        preexec_fn=lambda: [os.close(number) for number in closed],
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    assert ("quick" in done.stdout) == (1 not in closed)


def test_the_items_of_a_list_in_an_error_have_lines_of_their_own(capsys: Any) -> None:
    say_error("two keys are  unknown:\n  - a: no\n option\n  - b: gone", "Remove them.")
    assert "error: two keys are unknown:\n  - a: no option\n  - b: gone\nRemove them.\n" == (
        capsys.readouterr().err
    )
