"""What a process gets of the processor, and when a process without a deadline is taken to hang."""

from __future__ import annotations

import os

import pytest

from autotune.probe.process_tree import Idleness
from autotune.probe.processor import Share, measure_share, usable_cores


def test_a_process_gets_some_of_its_cores_and_no_more() -> None:
    share = measure_share(0.05)
    assert usable_cores() == share.cores
    assert 0.0 < share.got <= share.cores * 1.05
    assert share.slowdown >= 1.0


def test_a_quarter_of_the_cores_makes_work_four_times_as_long() -> None:
    assert 4.0 == Share(cores=8, got=2.0).slowdown
    assert 1.0 == Share(cores=2, got=2.01).slowdown


@pytest.mark.parametrize(("asked", "cores"), [("1", 1), ("", None), ("many", None), ("0", None)])
def test_no_more_cores_are_counted_than_the_user_gives_the_libraries(
    asked: str, cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = usable_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert (every if cores is None else cores) == usable_cores()


class Work:
    """A process as the kernel would tell of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.used = 0.0, 0.0
        monkeypatch.setattr("autotune.probe.process_tree._processor_seconds", lambda _: self.used)
        self.idleness = Idleness(os.getpid(), lambda: self.now)

    def after(self, seconds: float, used: float) -> float:
        self.now += seconds
        self.used += used
        return self.idleness.seconds()


def test_a_process_that_computes_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    assert [0.0] * 4 == [work.after(60.0, 0.5) for _ in range(4)]


def test_a_process_that_waits_is_idle_since_it_last_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(monkeypatch)
    assert 0.0 == work.after(60.0, 0.5)
    assert [60.0, 120.0] == [work.after(60.0, 0.0), work.after(60.0, 0.001)]
    assert 0.0 == work.after(60.0, 2.0)
