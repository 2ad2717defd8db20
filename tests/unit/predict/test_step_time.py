"""The roofline: what limits each kind of work, and work between traced shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.core.environment import Device
from autotune.core.rates import Curve
from autotune.predict.devices.catalogue import CATALOGUE
from autotune.predict.devices.efficiencies import expected_rates
from autotune.predict.devices.lookup import find_device
from autotune.predict.devices.measured import read_rates, write_rates
from autotune.predict.step_time import OVERHEAD, fit_work, step_times
from tests.support.work import GIGA, rates_of, transformer_work, work


def test_work_takes_the_longer_of_its_arithmetic_and_its_traffic() -> None:
    rates = rates_of(flops=100 * GIGA, moved=10 * GIGA)
    assert pytest.approx(2.0) == step_times([work("matmul", 200 * GIGA, 5 * GIGA)], rates).seconds
    assert pytest.approx(3.0) == step_times([work("matmul", 1 * GIGA, 30 * GIGA)], rates).seconds


def test_kinds_follow_one_another_and_every_operation_costs_its_start() -> None:
    rates = rates_of(launch=1e-3)
    step = step_times([work("matmul", 100 * GIGA), work("copy", moved=5 * GIGA, launches=9)], rates)
    assert pytest.approx(0.5) == step.parts["copy"]
    assert pytest.approx(0.010) == step.parts[OVERHEAD]
    assert pytest.approx(1.510) == step.seconds


def test_a_step_of_small_operations_lasts_as_long_as_the_host_needs_to_issue_them() -> None:
    rates = rates_of(host=1e-2)
    assert pytest.approx(1.0) == step_times([work("copy", moved=1, launches=100)], rates).seconds
    assert pytest.approx(5.0) == step_times([work("matmul", 500 * GIGA)], rates).seconds


def test_selective_checkpointing_costs_python_on_every_operation_of_a_layer() -> None:
    step = [work("copy", moved=1, launches=100)]
    here = rates_of().model_copy(update={"selective_seconds": 1e-2})
    plain, selective = step_times(step, here), step_times(step, here).checkpointed_selectively(here)
    assert pytest.approx(0.5) == selective.seconds - plain.seconds
    hidden = here.model_copy(update={"dispatch_seconds": 1e-4})
    long = [work("matmul", 500 * GIGA, launches=100)]
    times = step_times(long, hidden).checkpointed_selectively(hidden)
    assert pytest.approx(5.0) == times.seconds


def test_small_operations_run_at_the_rate_of_their_size() -> None:
    curve = Curve(sizes=(1e3, 1e6), per_s=(1e6, 1e9))
    assert pytest.approx([1e6, 10**7.5, 1e9]) == curve.at(np.asarray([10, 10**4.5, 1e12]))


@pytest.mark.parametrize(("tokens", "width"), [(100, 100), (4096, 512), (333, 111)])
def test_three_traced_shapes_give_the_time_of_every_other(tokens: int, width: int) -> None:
    shapes = [(256, 64), (1024, 256), (2048, 1024)]
    model = fit_work([(t, w, transformer_work(t, w)) for t, w in shapes])
    rates = rates_of(launch=1e-5, host=1e-6)
    exact = step_times(transformer_work(tokens, width), rates)
    found = model.times(np.asarray([float(tokens)]), np.asarray([float(width)]), rates)
    assert exact.seconds == pytest.approx(found.seconds, rel=1e-4)
    assert exact.parts["attention"] == pytest.approx(found.parts["attention"], rel=1e-4)


def test_one_traced_shape_is_scaled_by_its_tokens() -> None:
    model = fit_work([(100, 100, [work("copy", moved=10 * GIGA, launches=10)])])
    times = model.times(np.asarray([300.0]), np.asarray([300.0]), rates_of(moved=10 * GIGA))
    assert pytest.approx([3.0]) == times.seconds


def test_a_published_faster_device_is_predicted_faster() -> None:
    product = work("matmul", 1e15, 1e11).model_copy(update={"dtype": "float16"})
    step = [product, work("elementwise", moved=1e11, launches=5000)]
    seconds = [
        float(step_times(step, expected_rates(find_device(name))).seconds[0])
        for name in ("t4", "a10g", "l4", "a100-40gb", "a100-80gb", "h100", "b200")
    ]
    assert sorted(seconds, reverse=True) == seconds


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda s: s.name)
def test_no_device_is_expected_to_reach_its_peak(spec) -> None:  # type: ignore[no-untyped-def]
    rates = expected_rates(spec)
    curve = rates.flops_of("matmul", "float16")
    assert curve is not None and max(curve.per_s) < spec.fp16
    assert all(c.per_s[0] < spec.bandwidth for m in rates.moved.values() for c in m.values())


def test_measured_rates_are_found_again_for_the_same_device_torch_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(kind="cpu", index=None, name="a CPU", total_bytes=1, free_bytes=1, cores=2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert read_rates(tmp_path, device, "2.13.0") is None
    write_rates(tmp_path, device, "2.13.0", rates_of())
    assert rates_of() == read_rates(tmp_path, device, "2.13.0")
    assert read_rates(tmp_path, device, "2.14.0") is None
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert read_rates(tmp_path, device, "2.13.0") is None


def test_damaged_rates_are_measured_again(tmp_path: Path) -> None:
    device = Device(kind="cpu", index=None, name="a CPU", total_bytes=1, free_bytes=1, cores=2)
    write_rates(tmp_path, device, "2.13.0", rates_of())
    next((tmp_path / "rates").iterdir()).write_text("{", encoding="utf-8")
    assert read_rates(tmp_path, device, "2.13.0") is None


def test_a_small_product_reaches_less_than_a_large_one_on_a_named_device() -> None:
    curve = expected_rates(find_device("a100-80gb")).flops_of("matmul", "bfloat16")
    assert curve is not None
    small, large = curve.at(np.array([2.0 * 1024**3, 2.0 * 8192**3]))
    assert 0.80 * 312e12 == pytest.approx(large)
    assert 104.9 / 247.9 == pytest.approx(small / large)
