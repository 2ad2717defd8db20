"""What a meter and its cap promise: on this CPU, and on made-up GPUs of every kind we know of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from autotune.core.memory import Peaks
from autotune.probe.meters.base import Cap, Meter
from autotune.probe.meters.context import open_context
from autotune.probe.meters.cpu import CpuCap, CpuMeter
from autotune.probe.meters.cuda import CudaCap, CudaMeter
from autotune.probe.meters.sampler import Sampler
from autotune.testing.fake_nvml import (
    UUID,
    FakeNvml,
    gpu_lost,
    no_library,
    normal,
    old_driver,
    slice_of_a_card,
    unified,
    version_mismatch,
)
from autotune.testing.fake_runtime import FakeRuntime
from tests.support.facts import GIB, MIB

CHUNK = 64 * MIB


@dataclass
class Machine:
    """One implementation, and a way to take and give back memory on it."""

    meter: Meter
    cap: Cap
    take: Callable[[int], None]
    give_back: Callable[[], None]
    on_gpu: bool


def cpu() -> Iterator[Machine]:
    held: list[Any] = []
    cap = CpuCap()
    yield Machine(
        CpuMeter(), cap, lambda n: held.append(np.ones(n, dtype=np.uint8)), held.clear, False
    )
    cap.lift()


def made_up(driver: FakeNvml, key: str, **runtime: Any) -> Iterator[Machine]:
    device = driver.devices.get(key)
    cuda = FakeRuntime(device, **{"total_bytes": 16 * GIB, **runtime})
    identity = cuda.properties().identity(None, 0)
    context = open_context(cuda, driver, identity, lambda _: None)
    sampler = Sampler(driver, identity)
    taken: list[int] = []

    def take(size: int) -> None:
        cuda.allocate(size)
        taken.append(size)

    def give_back() -> None:
        cuda.release(sum(taken))
        taken.clear()

    cap = CudaCap(cuda, context)
    yield Machine(CudaMeter(cuda, sampler, context), cap, take, give_back, True)
    sampler.stop()


MACHINES: dict[str, Callable[[], Iterator[Machine]]] = {
    "cpu": cpu,
    "a card": lambda: made_up(normal(), f"GPU-{UUID}"),
    "a card others use too": lambda: made_up(normal(held={1: 3 * GIB}), f"GPU-{UUID}"),
    "a slice": lambda: made_up(slice_of_a_card(16 * GIB), f"MIG-{UUID}"),
    "unified memory": lambda: made_up(unified(), f"GPU-{UUID}", integrated=True),
    "a container without figures": lambda: made_up(normal(listed="no figure"), f"GPU-{UUID}"),
    "a container of 0 bytes": lambda: made_up(normal(listed="zero"), f"GPU-{UUID}"),
    "a container of the host's ids": lambda: made_up(normal(listed="other ids"), f"GPU-{UUID}"),
    "a container without a list": lambda: made_up(normal(listed="nobody"), f"GPU-{UUID}"),
    "no permission to list": lambda: made_up(normal(listed="no"), f"GPU-{UUID}"),
    "a desktop's card": lambda: made_up(
        normal(unlisted_bytes=(900 * MIB,), listed="zero"), f"GPU-{UUID}"
    ),
    "an old driver": lambda: made_up(old_driver(), f"GPU-{UUID}"),
    "no driver library": lambda: made_up(no_library(), "none"),
    "driver and library of two versions": lambda: made_up(version_mismatch(), "none"),
    "a lost card": lambda: made_up(gpu_lost(), "none"),
}


@pytest.fixture(params=MACHINES)
def machine(request: Any) -> Iterator[Machine]:
    yield from MACHINES[request.param]()


def charged(machine: Machine) -> int:
    found = machine.meter.read().deciding_bytes
    assert found is not None
    return found


def test_a_peak_outlives_what_made_it_until_the_reset(machine: Machine) -> None:
    before = charged(machine)
    machine.take(CHUNK)
    machine.give_back()
    after = charged(machine)
    assert after >= before + 0.9 * CHUNK
    if not machine.on_gpu:  # a caching allocator keeps what it once reserved
        machine.meter.reset()
        assert charged(machine) < after - 0.9 * CHUNK


def test_laps_are_peaks_of_their_own_and_part_of_what_is_read(machine: Machine) -> None:
    # BC43
    machine.meter.reset()
    start = machine.meter.lap()
    machine.take(CHUNK)
    machine.give_back()
    with_chunk, after = machine.meter.lap(), machine.meter.lap()
    assert start is not None and with_chunk is not None and after is not None
    assert with_chunk >= start + 0.9 * CHUNK
    assert after < with_chunk - 0.9 * CHUNK
    assert charged(machine) >= with_chunk, "laps do not hide a peak from the phase they are in"


def test_every_number_is_there_or_absent_with_a_reason(machine: Machine) -> None:
    machine.take(CHUNK)
    peaks = machine.meter.read()
    for name in ("allocated", "reserved", "process", "device_used"):
        value = getattr(peaks, f"{name}_bytes")
        assert (value is None) == (name in peaks.absent), name
        assert value is None or value > 0, "absent is None, never 0"
    assert all(peaks.absent.values())


def test_what_the_allocator_reserves_and_the_context_are_charged(machine: Machine) -> None:
    # BC12: never allocated alone.
    machine.take(CHUNK)
    peaks = machine.meter.read()
    deciding = peaks.deciding_bytes
    assert deciding is not None
    assert deciding >= (peaks.allocated_bytes or 0)
    if not machine.on_gpu:
        assert deciding == peaks.process_bytes
        return
    assert peaks.reserved_bytes is not None and peaks.context_bytes is not None
    assert deciding == max(peaks.reserved_bytes + peaks.context_bytes, peaks.process_bytes or 0)
    assert peaks.process_bytes is None or peaks.process_bytes >= peaks.reserved_bytes
    assert peaks.context_source


def test_a_cap_leaves_room_for_the_context(machine: Machine) -> None:
    machine.cap.enforce(1 * GIB)
    taken = 0
    with pytest.raises(MemoryError):
        while True:
            machine.take(CHUNK)
            taken += CHUNK
    peaks = machine.meter.read()
    assert (peaks.deciding_bytes or 0) <= 1 * GIB
    assert taken > 0.3 * GIB, "and takes no more than that"


def test_a_cap_makes_what_is_beyond_it_fail_and_lifting_it_lets_it_be(machine: Machine) -> None:
    machine.cap.enforce(1 * GIB)
    with pytest.raises(MemoryError):
        machine.take(2 * GIB)
    machine.take(CHUNK)
    machine.cap.lift()
    machine.give_back()
    machine.take(int(1.2 * GIB))
    machine.give_back()


def test_the_clocks_of_a_gpu_are_kept_with_what_was_seen(machine: Machine) -> None:
    state = machine.meter.state()
    if not machine.on_gpu:
        assert state is None
        return
    assert state is not None
    assert (state.sm_clock_mhz is None) == ("sm_clock" in state.absent)
    assert state.sm_clock_mhz in (None, 1980)


def test_a_retry_of_the_allocator_is_counted(machine: Machine) -> None:
    peaks: Peaks = machine.meter.read()
    if not machine.on_gpu:
        assert peaks.allocation_retries is None
        return
    machine.cap.enforce(1 * GIB)
    with pytest.raises(MemoryError):
        machine.take(2 * GIB)
    assert machine.meter.read().allocation_retries == 1
