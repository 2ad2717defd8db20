"""The made-up drivers say what the real pynvml makes of a driver library on the same machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.probe.meters.driver import Driver, DriverRefused, Identity
from autotune.probe.meters.faults import driver_fault
from autotune.probe.meters.nvml import NvmlDriver
from autotune.testing.fake_nvml import (
    BUS_ID,
    UUID,
    FakeNvml,
    gpu_lost,
    no_library,
    normal,
    not_permitted,
    old_driver,
    slice_of_a_card,
    unified,
    version_mismatch,
)
from tests.support.nvml import library_folder

GIB = 2**30
OWN = os.getpid()


@dataclass(frozen=True)
class Machine:
    """One machine as a made-up driver and as variables of the library."""

    fake: Callable[[], FakeNvml]
    variables: Mapping[str, str] = field(default_factory=dict)
    defines: tuple[str, ...] = ()


def used(size: int, processes: str) -> dict[str, str]:
    return {"FAKE_NVML_USED": str(size), "FAKE_NVML_PROCESSES": processes}


MACHINES = {
    "a card": Machine(
        lambda: normal(held={OWN: GIB, 7: 2 * GIB}),
        used(3 * GIB, f"self:{GIB},7:{2 * GIB}"),
    ),
    "0 bytes": Machine(lambda: normal(held={OWN: GIB}, listed="zero"), used(GIB, "self:0")),
    "no figure": Machine(lambda: normal(held={OWN: GIB}, listed="no figure"), used(GIB, "self:-")),
    "ids of the host": Machine(
        lambda: normal(held={OWN: GIB}, listed="other ids"),
        used(GIB, f"{OWN + 1_000_000}:{GIB}"),
    ),
    "no list": Machine(lambda: normal(held={OWN: GIB}, listed="nobody"), used(GIB, "")),
    "no permission to list": Machine(
        lambda: normal(held={OWN: GIB}, listed="no"), {**used(GIB, ""), "FAKE_NVML_LIST": "4"}
    ),
    "a small card with a desktop": Machine(
        lambda: normal(total_bytes=8 * GIB, unlisted_bytes=(GIB,)),
        {**used(GIB, ""), "FAKE_NVML_TOTAL": str(8 * GIB)},
    ),
    "versions that do not match": Machine(version_mismatch, {"FAKE_NVML_INIT": "18"}),
    "a lost card": Machine(gpu_lost, {"FAKE_NVML_OPEN": "15"}),
    "no permission": Machine(not_permitted, {"FAKE_NVML_OPEN": "4"}),
    "no permission at all": Machine(
        lambda: FakeNvml({}, refusal="NVML: Insufficient Permissions"), {"FAKE_NVML_INIT": "4"}
    ),
    "a reloaded systemd": Machine(
        lambda: FakeNvml({}, refusal="NVML: Unknown Error"), {"FAKE_NVML_INIT": "999"}
    ),
    "a slice": Machine(
        lambda: slice_of_a_card(20 * GIB, held={OWN: GIB}),
        {
            **used(GIB, f"self:{GIB}"),
            "FAKE_NVML_SLICE": str(20 * GIB),
            "FAKE_NVML_TOTAL": str(80 * GIB),
            "FAKE_NVML_MEMORY": "4",
        },
    ),
    "shared memory": Machine(unified, {"FAKE_NVML_MEMORY": "3", "FAKE_NVML_PROCESSES": ""}),
    "an old driver": Machine(
        lambda: normal(held={OWN: GIB}), used(GIB, f"self:{GIB}"), ("OLD_DRIVER",)
    ),
    "an older driver": Machine(
        lambda: old_driver(held={OWN: GIB}), used(GIB, f"self:{GIB}"), ("OLDER_DRIVER",)
    ),
}


def view(driver: Driver) -> dict[str, Any]:
    """Return all a driver says of the machine, refusals in its words; this process is ``self``."""

    def said(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except DriverRefused as refused:
            return f"refused: {refused}"

    found: dict[str, Any] = {"fault": driver_fault(driver, card=True), "count": said(driver.count)}
    handle = said(lambda: driver.open(Identity(UUID, BUS_ID)))
    if isinstance(handle, str) and handle.startswith("refused"):
        return {**found, "open": handle}
    memory = said(lambda: driver.memory(handle))
    listed = said(lambda: driver.process_bytes(handle))
    reading = driver.reading(handle)
    return {
        **found,
        "memory": memory if isinstance(memory, str) else [memory.total_bytes, memory.free_bytes],
        "processes": listed
        if isinstance(listed, str)
        else {"self" if pid == os.getpid() else str(pid): size for pid, size in listed.items()},
        "clocks": [reading.sm_clock_mhz, reading.memory_clock_mhz, reading.temperature_celsius],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nvml")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_made_up_driver_says_what_pynvml_says(machine: Machine, folder: Path) -> None:
    library = library_folder(folder, *machine.defines)
    done = subprocess.run(
        [sys.executable, "-m", "tests.contracts.test_nvml"],
        env={**os.environ, **machine.variables, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert 0 == done.returncode, done.stderr
    assert json.loads(done.stdout) == view(machine.fake())


def test_without_a_library_there_is_no_fault(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.contracts.test_nvml"],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    if found["fault"] or not str(found["count"]).startswith("refused"):
        pytest.skip("this machine has a driver of its own")
    assert found == view(no_library())


if __name__ == "__main__":
    print(json.dumps(view(NvmlDriver())))
