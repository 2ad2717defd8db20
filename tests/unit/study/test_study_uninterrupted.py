"""A signal that comes while a measurement is being kept acts once it is kept."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from autotune.study.uninterrupted import uninterrupted


def test_ctrl_c_inside_acts_after_the_block() -> None:
    kept = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        kept.append("all of it")
    assert ["all of it"] == kept
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
