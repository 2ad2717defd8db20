"""GPUs as this process sees them: slices, shared memory, containers, other people's memory."""

from __future__ import annotations

import os
from typing import Any

import pytest

from autotune.core.environment import Device
from autotune.doctor import gpu_checks
from autotune.probe.child.inspect import cuda_device, is_wsl
from autotune.probe.child.visible import see_one_device
from autotune.probe.meters.context import open_context
from autotune.probe.meters.cuda import CudaMeter
from autotune.probe.meters.driver import DriverRefused, Identity, Reading
from autotune.probe.meters.limit import limit_of
from autotune.probe.meters.nvml import NvmlDriver
from autotune.probe.meters.runtime import Properties
from autotune.probe.meters.sampler import Sampler
from autotune.testing.fake_nvml import (
    BUS_ID,
    NO_PERMISSION,
    NO_SYMBOL,
    NOT_SUPPORTED,
    UUID,
    FakeDevice,
    FakeNvml,
    no_library,
    normal,
    slice_of_a_card,
    unified,
)
from autotune.testing.fake_runtime import FakeRuntime
from tests.support.facts import GIB, GPU

SYSTEM = (256 * GIB, 200 * GIB)


def identity(runtime: FakeRuntime) -> Identity:
    return runtime.properties().identity(None, 0)


def device_of(
    driver: FakeNvml, runtime: FakeRuntime, system: tuple[int, int] = SYSTEM
) -> tuple[Device, list[str]]:
    notices: list[str] = []
    return cuda_device(0, runtime, driver, system, notices), notices


def test_what_others_hold_is_known_before_a_context_is_opened_and_is_said() -> None:
    # BC12: another process holds 2.9 GB of 12.
    driver = normal(total_bytes=12 * GIB, held={1: int(2.9 * GIB)})
    runtime = FakeRuntime(driver.devices[f"GPU-{UUID}"], total_bytes=12 * GIB)
    device, (notice,) = device_of(driver, runtime)
    assert device.total_bytes == 12 * GIB
    assert device.others_bytes == int(2.9 * GIB)
    assert not runtime.opened, "an own context would be counted as somebody else's"
    assert "Others hold 2.90 GiB of the 12.00 GiB" in notice


def test_a_quiet_card_needs_no_words() -> None:
    driver = normal(held={1: 10 * 2**20})
    device, notices = device_of(driver, FakeRuntime(driver.devices[f"GPU-{UUID}"]))
    assert notices == []
    assert not device.unified


def test_the_limit_of_a_slice_is_the_slice() -> None:
    # BC46: the card's own memory is refused, the slice has 32.5 GB.
    size = int(32.5 * 10**9)
    driver = slice_of_a_card(size, held={1: GIB})
    device, _ = device_of(driver, FakeRuntime(driver.devices[f"MIG-{UUID}"], total_bytes=size))
    assert (size, size - GIB) == (device.total_bytes, device.free_bytes)


@pytest.mark.parametrize("refusal", [NO_PERMISSION, ""])
def test_a_slice_the_driver_cannot_name_is_never_given_the_cards_memory(refusal: str) -> None:
    # BC46: only the card is found, and it refuses, or answers for all of its 80 GB.
    card = FakeDevice(total_bytes=80 * GIB, memory_refusal=refusal)
    runtime = FakeRuntime(FakeDevice(), total_bytes=20 * GIB)
    device, (notice,) = device_of(FakeNvml({f"GPU-{UUID}": card, BUS_ID: card}), runtime)
    assert device.total_bytes == 20 * GIB
    assert 0 < device.free_bytes <= 20 * GIB
    assert "driver-level memory is unavailable" in notice


@pytest.mark.parametrize("refusal", [NOT_SUPPORTED, NO_SYMBOL])
def test_memory_shared_with_the_system_is_said_and_never_zero(refusal: str) -> None:
    # BC47, first and second fake: the CUDA runtime answers.
    runtime = FakeRuntime(None, total_bytes=120 * GIB, integrated=True)
    device, (notice,) = device_of(unified(refusal), runtime, (128 * GIB, 100 * GIB))
    assert device.unified
    assert (120 * GIB, 100 * GIB) == (device.total_bytes, device.free_bytes)
    assert "shared with the system" in notice
    assert "activation_offloading is pointless" in notice


def test_shared_memory_is_known_by_its_size_when_cuda_does_not_say_it() -> None:
    runtime = FakeRuntime(None, total_bytes=120 * GIB)
    device, _ = device_of(unified(), runtime, (128 * GIB, 100 * GIB))
    assert device.unified


def test_a_card_larger_than_the_host_does_not_share_its_memory() -> None:
    host = (128 * GIB, 100 * GIB)
    refused = FakeDevice(memory_refusal=NOT_SUPPORTED)
    for driver in (no_library(), FakeNvml({f"GPU-{UUID}": refused})):
        device, _ = device_of(driver, FakeRuntime(None, total_bytes=139 * GIB), host)
        assert not device.unified
        assert device.free_bytes > 100 * GIB


def test_a_device_without_a_size_takes_the_systems() -> None:
    runtime = FakeRuntime(None, total_bytes=0, integrated=True)
    device, _ = device_of(unified(), runtime, (128 * GIB, 100 * GIB))
    assert device.total_bytes == 128 * GIB


def test_without_a_driver_library_the_cuda_runtime_is_asked_and_that_is_said_once() -> None:
    # BC46, BC47, third fake
    runtime = FakeRuntime(None)
    device, (notice,) = device_of(no_library(), runtime)
    assert (16 * GIB, 16 * GIB - runtime.context_bytes) == (device.total_bytes, device.free_bytes)
    assert not device.unified
    assert "Shared Library Not Found" in notice


def test_when_nobody_says_what_is_free_the_whole_is_taken_and_that_is_said() -> None:
    limit = limit_of(FakeRuntime(None, answers=False), no_library(), Identity(UUID), SYSTEM)
    assert limit.free_bytes == 16 * GIB
    assert "all of it is taken to be" in limit.notice


@pytest.mark.parametrize(
    ("visible", "index", "first"),
    [
        (None, 0, f"MIG-{UUID}"),
        ("2,0", 1, f"MIG-{UUID}"),
        ("GPU-aaaa,MIG-bbbb", 1, "MIG-bbbb"),
        ("MIG-GPU-cccc/3/0", 0, "MIG-GPU-cccc/3/0"),
    ],
)
def test_a_device_is_named_by_uuid_whatever_renumbers_it(
    visible: str | None, index: int, first: str
) -> None:
    names = FakeRuntime(None).properties().identity(visible, index)
    assert names.uuids[0] == first
    assert f"GPU-{UUID}" in names.uuids
    assert names.pci_bus_id == BUS_ID


def test_without_a_uuid_the_bus_id_finds_the_device() -> None:
    bare = Properties("x", GIB, (9, 0), False, None, BUS_ID)
    assert normal().open(bare.identity(None, 0)) == BUS_ID
    with pytest.raises(DriverRefused):
        normal().open(Identity(uuid=None))


def test_another_cards_memory_is_not_taken_for_this_one() -> None:
    other = FakeNvml({"GPU-other": FakeDevice(total_bytes=80 * GIB)})
    _, (notice,) = device_of(other, FakeRuntime(None))
    assert "Not Found" in notice


def test_the_four_numbers_stay_apart() -> None:
    # BC12: reserved and the context are the process's; what others hold is the device's.
    driver = normal(held={1: 3 * GIB})
    runtime = FakeRuntime(driver.devices[f"GPU-{UUID}"])
    context = open_context(runtime, driver, identity(runtime), lambda _: None)
    sampler = Sampler(driver, identity(runtime))
    meter = CudaMeter(runtime, sampler, context)
    runtime.allocate(4 * GIB)
    peaks = meter.read()
    sampler.stop()
    assert (4 * GIB, 5 * GIB) == (peaks.allocated_bytes, peaks.reserved_bytes)
    assert peaks.process_bytes == 5 * GIB + runtime.context_bytes == peaks.deciding_bytes
    assert peaks.device_used_bytes == peaks.process_bytes + 3 * GIB
    assert peaks.absent == {}


def test_clocks_are_summed_up_with_what_held_them_back() -> None:
    readings = (
        Reading(1980, 2619, 60),
        Reading(900, 2619, 84, ("hardware thermal slowdown",)),
        Reading(1800, 2619, 80),
    )
    driver = normal(reading=readings)
    sampler = Sampler(driver, Identity(UUID))
    for _ in readings:
        sampler.look(clocks=True)
    state = sampler.state()
    assert (1800, 900, 2619) == (
        state.sm_clock_mhz, state.sm_clock_least_mhz, state.memory_clock_mhz
    )  # fmt: skip
    assert (84, 3) == (state.temperature_celsius, state.samples)
    assert state.held_back == ("hardware thermal slowdown",)
    assert sampler.state().samples == 0, "each look is told once"


def test_clocks_that_are_not_given_are_absent_with_a_reason() -> None:
    sampler = Sampler(no_library(), Identity(UUID))
    sampler.look(clocks=True)
    state = sampler.state()
    assert state.sm_clock_mhz is None
    assert "Shared Library Not Found" in state.absent["sm_clock"]


def test_the_real_driver_says_in_its_words_that_it_is_not_here() -> None:
    # This machine may have one; then it does not know this UUID.
    with pytest.raises(DriverRefused, match="NVML"):
        NvmlDriver().open(Identity(UUID))


@pytest.mark.parametrize(
    ("driver", "words"),
    [(normal(), "clocks (NVML)"), (no_library(), "unavailable"), (unified(), "Not Supported")],
)
def test_the_doctor_says_what_can_be_read_of_a_gpu(driver: FakeNvml, words: str) -> None:
    gpu = GPU.model_copy(update={"uuid": UUID, "unified": words == "Not Supported"})
    (check,) = gpu_checks([gpu], "", driver)
    assert check.works
    assert words in check.detail
    assert gpu.unified == ("shared with the system" in check.detail)


def test_what_this_process_holds_is_not_somebody_elses() -> None:
    driver = normal(held={os.getpid(): GIB, 1: 2 * GIB})
    runtime = FakeRuntime(None, opened=True)
    assert limit_of(runtime, driver, Identity(UUID), SYSTEM).others_bytes == 2 * GIB


def test_a_process_of_the_host_with_the_same_id_is_somebody_else() -> None:
    driver = normal(held={os.getpid(): GIB, 1: 2 * GIB})
    assert limit_of(FakeRuntime(None), driver, Identity(UUID), SYSTEM).others_bytes == 3 * GIB


@pytest.mark.parametrize(
    ("release", "expected"),
    [("5.15.90.1-microsoft-standard-WSL2", True), ("6.8.0-45-generic", False)],
)
def test_wsl_is_known_by_its_kernel(release: str, expected: bool) -> None:
    # BC49
    assert is_wsl(release) is expected


@pytest.mark.parametrize(
    ("visible", "device", "expected"),
    [
        (None, "cuda:1", "1"),
        ("3,1", "cuda:1", "1"),
        ("GPU-aaaa,MIG-bbbb", "cuda:1", "MIG-bbbb"),
        ("GPU-aaaa", "cuda:0", "GPU-aaaa"),
        (None, "cuda:1 GPU-bbbb", "GPU-bbbb"),
        ("3,1", "cuda:1 GPU-bbbb", "GPU-bbbb"),
        ("MIG-aaaa", "cuda:0 GPU-aaaa", "MIG-aaaa"),
    ],
)
def test_a_probe_sees_the_one_device_it_measures(
    visible: str | None, device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # BC11: several visible devices make Trainer wrap the model in DataParallel.
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert see_one_device(*device.split()) == "cuda:0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == expected


def test_a_probe_on_the_cpu_leaves_the_variable_alone(monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert see_one_device("cpu") == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
