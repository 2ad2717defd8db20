"""Is the device as free as before the search: waited for, with a limit, and then said."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.environment import Device
from autotune.core.outcome import Phase
from autotune.probe.baseline import Baseline, Start
from autotune.probe.meters.driver import Driver
from autotune.probe.phase_file import PHASE_FILE, PhaseFile, read_phase
from autotune.testing.fake_nvml import UUID, FakeDevice, FakeNvml, no_library, normal
from tests.support.facts import CPU, GIB, GPU

OTHERS = 1  # a process id


class Waits:
    """Count the waits; after some of them the device is free again."""

    def __init__(self, card: FakeDevice, free_after: int) -> None:
        self.card, self.free_after, self.count = card, free_after, 0

    def __call__(self, seconds: float) -> None:
        assert seconds > 0.0
        self.count += 1
        if self.count >= self.free_after:
            self.card.held.pop(2, None)


def card_of(driver: FakeNvml) -> FakeDevice:
    return driver.devices[f"GPU-{UUID}"]


def device_with(**changes: object) -> Device:
    return GPU.model_copy(update={"uuid": UUID, "free_bytes": 15 * GIB, **changes})


def test_a_device_as_free_as_before_is_not_waited_for() -> None:
    # BC21: the second of two trials finds what the first found.
    driver = normal(held={OTHERS: GIB})
    waits = Waits(card_of(driver), 0)
    baseline = Baseline(device_with(), driver, waits)
    assert [baseline.start(12 * GIB) for _ in range(2)] == [Start(15 * GIB)] * 2
    assert waits.count == 0


def test_memory_that_comes_back_is_waited_for() -> None:
    driver = normal(held={OTHERS: GIB, 2: 6 * GIB})
    waits = Waits(card_of(driver), 3)
    assert Baseline(device_with(), driver, waits).start(12 * GIB) == Start(15 * GIB)
    assert waits.count == 3


def test_memory_that_does_not_come_back_is_a_surplus_and_is_waited_for_once() -> None:
    driver = normal(held={OTHERS: GIB, 2: 6 * GIB})
    waits = Waits(card_of(driver), 10**6)
    baseline = Baseline(device_with(), driver, waits)
    assert baseline.start(12 * GIB) == Start(9 * GIB, 6 * GIB)
    waited = waits.count
    assert 0 < waited < 100
    assert baseline.start(12 * GIB) == Start(9 * GIB, 6 * GIB)
    assert waits.count == waited


def test_a_surplus_that_leaves_what_the_probe_may_use_does_not_excuse_it() -> None:
    driver = normal(held={OTHERS: GIB, 2: 6 * GIB})
    waits = Waits(card_of(driver), 10**6)
    assert Baseline(device_with(), driver, waits).start(4 * GIB) == Start(9 * GIB)


@pytest.mark.parametrize(
    ("device", "driver"), [(CPU, normal()), (device_with(), no_library())], ids=["cpu", "no nvml"]
)
def test_where_nobody_can_be_asked_nothing_is_claimed(device: Device, driver: Driver) -> None:
    baseline = Baseline(device, driver, Waits(FakeDevice(), 0))
    assert [baseline.start(GIB), baseline.start(GIB)] == [Start(), Start()]


def test_the_last_phase_outlives_its_process(tmp_path: Path) -> None:
    told = PhaseFile(tmp_path)
    told.tell(Phase.OPTIMIZER_STEP, 12)
    told.tell(Phase.SAVE, 2)
    assert read_phase(tmp_path) == (Phase.SAVE, 2)


def test_no_phase_or_a_damaged_one_is_none(tmp_path: Path) -> None:
    assert read_phase(tmp_path) == (None, 0)
    (tmp_path / PHASE_FILE).write_text("dreaming x")
    assert read_phase(tmp_path) == (None, 0)
