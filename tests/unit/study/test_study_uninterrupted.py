"""A signal that comes while a measurement is being kept acts once it is kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autotune.study.uninterrupted import uninterrupted

Answers = Callable[[signal.Signals, Any], None]


@pytest.fixture
def answers() -> Iterator[Answers]:
    """Set handlers for the length of a test: what the suite was started with does not matter."""
    before: dict[signal.Signals, Any] = {}

    def answer(number: signal.Signals, handler: Any) -> None:
        before.setdefault(number, signal.signal(number, handler))

    yield answer
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_inside_acts_after_the_block(number: signal.Signals, answers: Answers) -> None:
    answers(number, signal.default_int_handler)
    kept = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), number)
        kept.append("all of it")
    assert ["all of it"] == kept
    assert signal.getsignal(number) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_ignored(number: signal.Signals, answers: Answers) -> None:
    answers(number, signal.SIG_IGN)
    with uninterrupted():
        os.kill(os.getpid(), number)
        assert signal.SIG_IGN is signal.getsignal(number)
    assert signal.SIG_IGN is signal.getsignal(number)


def test_without_a_signal_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with uninterrupted():
        pass
    assert before is signal.getsignal(signal.SIGTERM)


def test_outside_the_main_thread_nothing_is_held() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [True] == done
