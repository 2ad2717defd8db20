"""A driver that refuses is not "no GPU": it is said, with what to do, and is no silent CPU run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.core.environment import Environment
from autotune.core.errors import EnvironmentUnable
from autotune.doctor import gpu_checks
from autotune.probe.child.inspect import choose_device, devices_named, gpus_unseen
from autotune.probe.meters.driver import DriverRefused
from autotune.probe.meters.faults import driver_fault, remedy_of
from autotune.testing.fake_nvml import (
    GPU_LOST,
    NO_FUNCTION,
    NO_PERMISSION,
    VERSION_MISMATCH,
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
from tests.support.facts import CPU, GPU

NOT_LOADED = "NVML: Driver Not Loaded"
UNKNOWN = "NVML: Unknown Error"

#: A driver that refuses, what it says, and what helps.
FAULTS: dict[str, tuple[Callable[[], FakeNvml], str, str]] = {
    "versions": (version_mismatch, VERSION_MISMATCH, "reboot, or load the driver anew"),
    "a lost card": (gpu_lost, GPU_LOST, "Reboot"),
    "no permission": (not_permitted, NO_PERMISSION, "/dev/nvidia"),
    "no permission at all": (
        lambda: FakeNvml({}, refusal=NO_PERMISSION),
        NO_PERMISSION,
        "/dev/nvidia",
    ),
    "an old library": (lambda: FakeNvml({}, refusal=NO_FUNCTION), NO_FUNCTION, "Update the driver"),
    "a reloaded systemd": (lambda: FakeNvml({}, refusal=UNKNOWN), UNKNOWN, "Restart the container"),
    "words nobody knows": (lambda: FakeNvml({}, refusal="NVML: 1234"), "NVML: 1234", ""),
}


def environment_of(driver: FakeNvml, *, visible: str | None = None, gpus: int = 0) -> Environment:
    fault = driver_fault(driver, card=True)
    notices: tuple[str, ...] = ()
    if not gpus:
        variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        said, fault = gpus_unseen(driver, fault, variables, "13.0")
        notices = (said,) if said else ()
    return Environment(
        versions={},
        python="3.11",
        platform="Linux",
        devices=(*(GPU,) * gpus, CPU),
        notices=notices,
        gpu_fault=fault,
    )


@pytest.mark.parametrize(("make", "words", "remedy"), FAULTS.values(), ids=FAULTS)
def test_where_torch_sees_no_gpu_a_fault_stops_with_its_words_and_the_remedy(
    make: Callable[[], FakeNvml], words: str, remedy: str
) -> None:
    """https://github.com/mozilla/translations/issues/1167"""
    found = environment_of(make())
    for wanted in ("auto", "cuda", "cuda:0"):
        with pytest.raises(EnvironmentUnable) as stopped:
            choose_device(found, wanted)
        assert words.rstrip(".") in stopped.value.message
        assert remedy in (stopped.value.hint or "")
        assert "--device cpu" in (stopped.value.hint or "")
    (notice,) = found.notices
    assert words.rstrip(".") in notice and remedy in notice


@pytest.mark.parametrize(("make", "words", "remedy"), FAULTS.values(), ids=FAULTS)
def test_the_cpu_asked_for_is_measured_and_the_fault_is_still_said(
    make: Callable[[], FakeNvml], words: str, remedy: str
) -> None:
    found = environment_of(make())
    assert CPU == choose_device(found, "cpu")
    assert (CPU,) == devices_named(found, ("auto", "cpu"))


@pytest.mark.parametrize(("make", "words", "remedy"), FAULTS.values(), ids=FAULTS)
def test_a_gpu_torch_sees_all_the_same_is_measured(
    make: Callable[[], FakeNvml], words: str, remedy: str
) -> None:
    found = environment_of(make(), gpus=1)
    assert GPU == choose_device(found, "auto")
    assert words.rstrip(".") in found.gpu_fault


@pytest.mark.parametrize("visible", ["", "-1", " ", "none"])
def test_gpus_the_user_hides_are_not_asked_for(visible: str) -> None:
    found = environment_of(version_mismatch(), visible=visible)
    assert CPU == choose_device(found, "auto")
    (notice,) = found.notices
    assert "version mismatch" in notice and "measuring on the CPU" in notice


@pytest.mark.parametrize("visible", ["0", "1,0", "GPU-aaaa", "MIG-bbbb"])
def test_gpus_the_user_names_are_asked_for(visible: str) -> None:
    with pytest.raises(EnvironmentUnable, match="version mismatch"):
        choose_device(environment_of(version_mismatch(), visible=visible), "auto")


def test_a_machine_without_a_driver_is_a_cpu_and_no_fault() -> None:
    found = environment_of(no_library())
    assert ("", ()) == (found.gpu_fault, found.notices)
    assert CPU == choose_device(found, "auto")
    with pytest.raises(EnvironmentUnable, match="no device 'cuda'"):
        choose_device(found, "cuda")


@pytest.mark.parametrize(("card", "expected"), [(True, NOT_LOADED), (False, "")])
def test_a_driver_that_is_not_loaded_is_a_fault_where_there_is_a_card(
    card: bool, expected: str
) -> None:
    assert expected == driver_fault(FakeNvml({}, refusal=NOT_LOADED), card=card)


@pytest.mark.parametrize("make", [normal, unified, old_driver, lambda: slice_of_a_card(2**34)])
def test_a_driver_that_answers_less_has_no_fault(make: Callable[[], FakeNvml]) -> None:
    assert "" == driver_fault(make())


def test_one_lost_card_of_two_is_named() -> None:
    good, bad = normal().devices.popitem()[1], gpu_lost().devices.popitem()[1]
    driver = FakeNvml({"GPU-a": good, "GPU-b": bad})
    assert f"{GPU_LOST} (GPU 1)" == driver_fault(driver)


@pytest.mark.parametrize(
    ("visible", "built_for", "why"),
    [
        (None, None, "installed without CUDA"),
        ("", "13.0", "CUDA_VISIBLE_DEVICES is ''"),
        ("-1", "13.0", "CUDA_VISIBLE_DEVICES is '-1'"),
        (None, "13.0", "driver may be too old for the CUDA 13.0"),
    ],
)
def test_a_gpu_torch_does_not_see_is_said_with_the_likely_reason(
    visible: str | None, built_for: str | None, why: str
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    said, fault = gpus_unseen(normal(), "", environment, built_for)
    assert said.startswith("The driver has 1 GPU and torch sees none:")
    assert why in said
    assert said.endswith("Measuring on the CPU instead.")
    assert "" == fault, "the driver is well"


def test_the_doctor_names_the_fault_and_what_to_do() -> None:
    driver, memory = gpu_checks([], VERSION_MISMATCH, version_mismatch())
    assert not driver.works and not memory.works
    assert "version mismatch. The driver was updated" in driver.detail
    (only,) = gpu_checks([], "", no_library())
    assert "torch sees no GPU" == only.detail


def test_the_doctor_says_that_processes_are_not_listed() -> None:
    (check,) = gpu_checks([GPU.model_copy(update={"uuid": None, "pci_bus_id": "0000:3b:00.0"})], "",
                          normal(listed="no"))  # fmt: skip
    assert check.works and "processes are not listed" in check.detail


def test_a_refusal_nobody_knows_has_no_remedy() -> None:
    assert "" == remedy_of("NVML: 1234")
    with pytest.raises(DriverRefused):
        FakeNvml({}, refusal="NVML: 1234").count()
