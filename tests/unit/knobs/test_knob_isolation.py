"""What a config asks of a launcher is said, since a probe is one process on one device (BC11)."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.knobs.isolation import (
    LAUNCHER_ENV,
    RECORDED_ENV,
    WAITING_NAMES,
    launch_notices,
)
from autotune.probe.launcher import child_environment


@pytest.mark.parametrize(
    ("options", "named", "divided"),
    [
        ({"num_processes": 4}, "num_processes 4", False),
        ({"accelerate_config": "multi_gpu"}, "accelerate_config multi_gpu", False),
        ({"accelerate_config": "zero3"}, "accelerate_config zero3", True),
        ({"accelerate_config": "fsdp2", "num_processes": 8}, "num_processes 8", True),
        ({"use_deepspeed": True, "zero_stage": 2}, "use_deepspeed True, zero_stage 2", True),
    ],
)
def test_what_numbers_mean_for_several_processes_is_said(
    options: dict[str, Any], named: str, divided: bool
) -> None:
    first, *more = launch_notices(options)
    assert named in first
    assert "one process on one device" in first
    assert divided is bool(more)
    assert all("needs less memory than is said here" in sentence for sentence in more)


@pytest.mark.parametrize("options", [{}, {"num_processes": 1}, {"num_processes": "1"}])
def test_one_process_needs_no_remark(options: dict[str, Any]) -> None:
    assert () == launch_notices(options)


def test_no_measuring_process_inherits_a_launchers_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in LAUNCHER_ENV:
        monkeypatch.setenv(name, "1")
    assert not set(LAUNCHER_ENV) & child_environment({"WORLD_SIZE": "2"}).keys()


def test_waiting_threads_soon_sleep_unless_the_user_says_how_they_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in WAITING_NAMES:
        monkeypatch.delenv(name, raising=False)
    made = child_environment()
    assert ("1000", "0") == (made["GOMP_SPINCOUNT"], made["KMP_BLOCKTIME"])
    assert "GOMP_SPINCOUNT" not in child_environment({"OMP_WAIT_POLICY": "active"})
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    assert "5" == child_environment()["GOMP_SPINCOUNT"]
    assert "KMP_BLOCKTIME" not in child_environment()
    assert set(WAITING_NAMES) <= set(RECORDED_ENV), "a result says which it was"
