"""What a process holds of a GPU beside tensors, on machines whose driver tells the truth or not."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from autotune.core.cuda_memory import usual_context_bytes
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome
from autotune.probe.judge_run import judge_run
from autotune.probe.meters.context import BY_DIFFERENCE, BY_PROCESS, Context, open_context
from autotune.probe.meters.cuda import CudaCap, CudaMeter
from autotune.probe.meters.sampler import Sampler
from autotune.probe.observed import Observed
from autotune.testing.fake_nvml import (
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
from autotune.testing.fake_runtime import FakeRuntime
from tests.support.facts import GIB, MIB, measurement_of

#: Machines on which the driver's figure for a process is no answer.
LIARS: dict[str, Callable[[], FakeNvml]] = {
    "0 bytes": lambda: normal(listed="zero"),
    "no figure": lambda: normal(listed="no figure"),
    "ids of the host": lambda: normal(listed="other ids", held={1: 3 * GIB}),
    "no list": lambda: normal(listed="nobody"),
    "no permission to list": lambda: normal(listed="no"),
    "an old driver": old_driver,
    "a desktop": lambda: normal(listed="zero", unlisted_bytes=(900 * MIB,)),
    "a slice": lambda: slice_of_a_card(16 * GIB, listed="zero"),
}
REFUSING: dict[str, Callable[[], FakeNvml]] = {
    "no library": no_library,
    "versions that do not match": version_mismatch,
    "a lost card": gpu_lost,
    "no permission": not_permitted,
    "shared memory": unified,
}


def machine(driver: FakeNvml, **runtime: object) -> FakeRuntime:
    card = driver.devices.get(f"MIG-{UUID}") or driver.devices.get(f"GPU-{UUID}")
    return FakeRuntime(card, **runtime)  # type: ignore[arg-type]


def opened(driver: FakeNvml, runtime: FakeRuntime) -> Context:
    identity = runtime.properties().identity(None, 0)
    return open_context(runtime, driver, identity, lambda _: None)


def measured(driver: FakeNvml, runtime: FakeRuntime, budget: int, tensors: int) -> Peaks:
    """Return the peaks of a probe whose tensors take what they can get, up to ``tensors``."""
    context = opened(driver, runtime)
    sampler = Sampler(driver, runtime.properties().identity(None, 0))
    meter = CudaMeter(runtime, sampler, context)
    CudaCap(runtime, context).enforce(budget)
    runtime.allocate(tensors)
    peaks = meter.read()
    sampler.stop()
    return peaks


def judged(peaks: Peaks, *, cap_bytes: int, total_bytes: int) -> tuple[Ending, int | None]:
    seen = Observed(
        failure=None,
        measurement=None,
        code=0,
        timed_out=False,
        deadline_s=60.0,
        peak_rss_bytes=None,
        host_total_bytes=64 * GIB,
        cap_bytes=cap_bytes,
        device="cuda:0",
        device_total_bytes=total_bytes,
    )
    return judge_run(measurement_of(peaks=peaks), seen)


def test_where_the_driver_tells_the_truth_its_figure_is_taken() -> None:
    driver = normal(held={1: 3 * GIB})
    runtime = machine(driver, kernels_bytes=90 * MIB)
    found = opened(driver, runtime)
    assert (590 * MIB, BY_PROCESS, "") == (found.held_bytes, found.source, found.unlisted)


@pytest.mark.parametrize("make", LIARS.values(), ids=LIARS)
def test_a_figure_that_is_no_answer_leaves_the_difference_of_free_memory(
    make: Callable[[], FakeNvml],
) -> None:
    driver = make()
    found = opened(driver, machine(driver, kernels_bytes=90 * MIB))
    assert (590 * MIB, BY_DIFFERENCE) == (found.held_bytes, found.source)
    assert found.unlisted


@pytest.mark.parametrize("make", REFUSING.values(), ids=REFUSING)
def test_where_nothing_can_be_asked_the_usual_is_taken_and_says_so(
    make: Callable[[], FakeNvml],
) -> None:
    driver = make()
    found = opened(driver, machine(driver))
    assert usual_context_bytes("9.0") == found.held_bytes
    assert found.source.startswith("as usual for compute capability 9.0; it cannot be measured")
    assert "NVML" in found.source


@pytest.mark.parametrize(
    ("drift", "expected"),
    [
        # What nobody can tell apart is charged.
        ((0, 0, 300 * MIB), 800 * MIB),
        ((300 * MIB, 300 * MIB, 0), usual_context_bytes("9.0")),
        (tuple(range(0, 4 * GIB, 200 * MIB)), usual_context_bytes("9.0")),
        ((0, 0, 3 * GIB), usual_context_bytes("9.0")),
    ],
    ids=["somebody begins", "somebody ends", "somebody never rests", "somebody takes it all"],
)
def test_others_that_move_meanwhile_never_make_the_context_smaller(
    drift: tuple[int, ...], expected: int
) -> None:
    driver = normal(listed="zero", unlisted_bytes=drift)
    assert expected == opened(driver, machine(driver)).held_bytes


def test_a_listed_process_that_moves_meanwhile_makes_the_difference_unknown() -> None:
    driver = normal(listed="other ids", held={1: GIB})
    card = driver.devices[f"GPU-{UUID}"]

    class Busy(FakeRuntime):
        def warm_up(self) -> None:
            super().warm_up()
            card.held[1] += 200 * MIB

    found = opened(driver, Busy(card))
    assert "others use the device meanwhile" in found.source
    assert usual_context_bytes("9.0") == found.held_bytes


def test_a_process_of_the_host_with_the_same_id_is_not_this_one() -> None:
    driver = normal(held={os.getpid(): 3 * GIB})
    card = driver.devices[f"GPU-{UUID}"]

    class Elsewhere(FakeRuntime):
        def _show(self) -> None:
            card.held[77] = self.context_bytes + self.reserved_bytes()

    found = opened(driver, Elsewhere(card))
    assert "another process under this one's id" in found.unlisted
    assert (500 * MIB, BY_DIFFERENCE) == (found.held_bytes, found.source)


def test_a_device_that_was_open_before_has_no_difference() -> None:
    driver = normal(listed="zero")
    runtime = machine(driver)
    runtime.warm_up()
    assert "was open before" in opened(driver, runtime).source


def test_a_context_of_its_own_before_is_no_process_of_the_host() -> None:
    driver = normal()
    runtime = machine(driver)
    runtime.warm_up()
    assert BY_PROCESS == opened(driver, runtime).source


@pytest.mark.parametrize("make", [normal, *LIARS.values(), *REFUSING.values()])
def test_whatever_the_driver_says_the_context_counts_in_what_decides(
    make: Callable[[], FakeNvml],
) -> None:
    driver = make()
    runtime = machine(driver, reserved_ratio=1.0)
    peaks = measured(driver, runtime, budget=8 * GIB, tensors=4 * GIB)
    assert peaks.deciding_bytes is not None and peaks.context_bytes is not None
    assert 4 * GIB + peaks.context_bytes == peaks.deciding_bytes
    assert peaks.context_bytes >= 500 * MIB
    assert (peaks.process_bytes is None) == ("process" in peaks.absent)


@pytest.mark.parametrize("make", LIARS.values(), ids=LIARS)
def test_a_card_that_tensors_fill_does_not_fit(make: Callable[[], FakeNvml]) -> None:
    """https://github.com/pytorch/pytorch/issues/37250: 24.0 of 24 GiB were said to fit."""
    driver = make()
    context = opened(driver, machine(driver))
    peaks = Peaks(
        allocated_bytes=20 * GIB, reserved_bytes=24 * GIB, context_bytes=context.held_bytes
    )
    ending, needed = judged(peaks, cap_bytes=24 * GIB, total_bytes=24 * GIB)
    assert ending.outcome.is_memory
    assert 24 * GIB + context.held_bytes == needed


def test_kernels_are_loaded_before_the_cap_so_that_filling_it_fits() -> None:
    driver = normal()
    runtime = machine(driver, kernels_bytes=200 * MIB, reserved_ratio=1.0)
    budget = 8 * GIB
    peaks = measured(driver, runtime, budget, tensors=budget - 700 * MIB)
    assert budget == peaks.deciding_bytes
    ending, _ = judged(peaks, cap_bytes=budget, total_bytes=16 * GIB)
    assert Outcome.FITS is ending.outcome


def test_a_figure_that_falls_below_the_reserved_peak_later_is_no_answer() -> None:
    driver = normal()
    runtime = machine(driver)
    context = opened(driver, runtime)
    sampler = Sampler(driver, runtime.properties().identity(None, 0))
    meter = CudaMeter(runtime, sampler, context)
    runtime.allocate(4 * GIB)
    driver.devices[f"GPU-{UUID}"].held[os.getpid()] = 600 * MIB
    peaks = meter.read()
    sampler.stop()
    assert peaks.process_bytes is None
    assert "less than the 5.00 GiB the allocator reserves" in peaks.absent["process"]
    assert 5 * GIB + context.held_bytes == peaks.deciding_bytes
