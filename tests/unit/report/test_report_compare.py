from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.device_state import DeviceState
from autotune.core.memory import Peaks
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.result import Result
from autotune.report import (
    Comparison,
    compare,
    html_page,
    markdown,
    parse_thresholds,
    render_comparison,
)
from autotune.report.comparison_json import render as render_json
from autotune.report.comparison_text import render as render_text
from tests.golden.check import assert_golden
from tests.support.results import cpu_result, gpu_result, nothing_fits_result, with_best


def changed(*, peak: float = 1.0, speed: float = 1.0, steps: float = 1.0) -> Result:
    """Return the sample result with its winner's numbers multiplied."""
    result = gpu_result()
    best = result.best_trial
    assert best is not None
    assert best.estimate is not None
    measurement = best.report.measurement
    assert measurement is not None
    peaks = {
        name: None if value is None else int(value * peak)
        for name, value in measurement.peaks.model_dump(
            exclude={"absent", "context_source"}
        ).items()
    }
    timed = tuple(
        s.model_copy(update={"seconds": s.seconds * steps}) for s in measurement.timed_steps
    )
    measured = measurement.model_copy(update={"peaks": Peaks(**peaks), "timed_steps": timed})
    rate = best.estimate.useful_tokens_per_s * speed
    return with_best(
        result,
        estimate=best.estimate.model_copy(update={"useful_tokens_per_s": rate}),
        report=best.report.model_copy(update={"measurement": measured}),
    )


def verdicts(current: Result, *thresholds: str, **options: Any) -> dict[str, str]:
    made = compare(gpu_result(), current, parse_thresholds(thresholds), **options)
    return {row.name: row.verdict for row in made.rows if row.verdict != "not checked"}


def test_equal_results_pass() -> None:
    made = compare(gpu_result(), gpu_result(), parse_thresholds([]))
    assert made.passed
    assert {"peak_memory": "ok", "throughput": "ok"} == verdicts(gpu_result())


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (changed(peak=1.02), {"peak_memory": "ok", "throughput": "ok"}),
        (changed(peak=1.04), {"peak_memory": "regression", "throughput": "ok"}),
        (changed(peak=0.5, speed=2.0), {"peak_memory": "ok", "throughput": "ok"}),
        (changed(speed=0.96), {"peak_memory": "ok", "throughput": "ok"}),
        (changed(speed=0.9), {"peak_memory": "ok", "throughput": "regression"}),
    ],
)
def test_only_what_got_worse_by_more_than_allowed_is_a_regression(
    current: Result, expected: dict[str, str]
) -> None:
    assert expected == verdicts(current)


def test_a_change_beyond_the_threshold_but_within_the_noise_is_no_regression() -> None:
    assert {"throughput": "within noise"} == verdicts(changed(speed=0.99), "throughput:-0.5%")
    assert {"throughput": "regression"} == verdicts(changed(speed=0.9), "throughput:-0.5%")


def test_step_times_of_one_shape_are_compared_step_by_step() -> None:
    made = compare(gpu_result(), changed(steps=1.05), parse_thresholds(["step_time:+1%"]))
    assert ("regression", pytest.approx(0.0, abs=1e-5)) == (
        made.rows[0].verdict,
        made.rows[0].noise,
    )


def test_each_of_the_four_peaks_has_its_own_threshold() -> None:
    names = ["allocated", "reserved", "process", "device"]
    expected = {f"peak_memory.{name}": "regression" for name in names}
    assert expected == verdicts(changed(peak=1.1), *(f"peak_memory.{n}:+5%" for n in names))


def with_state(state: DeviceState) -> Result:
    """Return the sample result with the device in this state while its winner was timed."""
    result = gpu_result()
    best = result.best_trial
    assert best is not None and best.report.measurement is not None
    measured = best.report.measurement.model_copy(update={"device_state": state})
    return with_best(result, report=best.report.model_copy(update={"measurement": measured}))


def test_clocks_that_were_held_back_are_said_beside_the_numbers() -> None:
    hot = with_state(
        DeviceState(
            sm_clock_mhz=1410,
            sm_clock_least_mhz=900,
            temperature_celsius=88,
            held_back=("heat",),
            samples=9,
        )
    )
    made = compare(gpu_result(), hot, parse_thresholds([]))
    words = "1410 MHz (least 900), at most 88 \u00b0C, held back by heat"
    assert (f"clocks of the current result were held back: {words}",) == made.differences
    assert made.passed, "said, not judged"
    cool = with_state(DeviceState(sm_clock_mhz=1410, sm_clock_least_mhz=1410, samples=9))
    assert () == compare(cool, cool, parse_thresholds([])).differences
    assert words in markdown.render(hot)
    assert words in html_page.render(hot)


def test_speed_as_a_ratio_ignores_how_fast_the_machine_is() -> None:
    assert {"throughput": "ok"} == verdicts(changed(speed=0.5), "throughput:-5%", speed="ratio")


def test_unlike_machines_and_versions_are_refused_unless_allowed() -> None:
    other = gpu_result()
    device = other.device.model_copy(update={"name": "NVIDIA H100"})
    versions = {**other.environment.versions, "torch": "2.14.0"}
    other = other.model_copy(
        update={
            "device": device,
            "environment": other.environment.model_copy(update={"versions": versions}),
        }
    )
    refused = compare(gpu_result(), other, parse_thresholds([]))
    assert not refused.passed
    assert (
        "device: NVIDIA A10G in the baseline, NVIDIA H100 now",
        "torch: 2.13.0 in the baseline, 2.14.0 now",
    ) == refused.refusals
    allowed = compare(gpu_result(), other, parse_thresholds([]), allow_different=True)
    assert allowed.passed
    assert refused.refusals == allowed.differences


def with_rows(**changes: Any) -> Result:
    result = gpu_result()
    return result.model_copy(update={"profile": result.profile.model_copy(update=changes)})


def test_other_rows_are_refused() -> None:
    refused = compare(gpu_result(), with_rows(tokens=1_000_000), parse_thresholds([])).refusals
    assert 1 == len(refused)
    assert refused[0].startswith("rows: 25,000 rows of 9,200,000 tokens")


def test_equal_rows_named_in_another_way_are_compared_and_that_is_said() -> None:
    made = compare(gpu_result(), with_rows(fingerprint="other"), parse_thresholds([]))
    assert made.passed
    assert ("rows: from another place or other text, with the same lengths",) == made.differences


def test_a_flipped_knob_is_named_beside_the_regression_it_makes() -> None:
    best = gpu_result().best_trial
    assert best is not None
    knobs = {**best.candidate.knobs, "gradient_checkpointing": "none"}
    current = changed(peak=1.3)
    flipped = with_best(current, candidate=Candidate(knobs=knobs))
    flipped = flipped.model_copy(update={"best": Candidate(knobs=knobs).key})
    made = compare(gpu_result(), flipped, parse_thresholds([]))
    assert ["peak_memory"] == [row.name for row in made.regressions]
    assert ("gradient_checkpointing: selective in the baseline, none now",) == made.differences


def test_what_was_not_measured_is_a_refusal_and_never_a_pass() -> None:
    thresholds = parse_thresholds(["peak_memory.device:+3%"])
    made = compare(cpu_result(), cpu_result(), thresholds)
    assert not made.passed
    assert (
        "the baseline holds no peak_memory.device",
        "the current result holds no peak_memory.device",
    ) == made.refusals


def test_a_baseline_without_a_measured_candidate_is_refused() -> None:
    made = compare(nothing_fits_result(), gpu_result(), parse_thresholds([]))
    assert "the baseline holds no measured candidate" in made.refusals


def test_a_configuration_that_no_longer_fits_fails() -> None:
    made = compare(gpu_result(), nothing_fits_result(), parse_thresholds([]))
    assert "nothing fits" == made.failed
    assert not made.passed


def test_a_single_probe_that_ends_badly_fails_with_its_reason() -> None:
    result = gpu_result()
    best = result.best_trial
    assert best is not None
    ending = Ending(outcome=Outcome.OOM_DEVICE, phase=Phase.STEADY, reason="needs 30 GiB")
    report = best.report.model_copy(update={"ending": ending, "measurement": None})
    only = best.model_copy(update={"report": report, "estimate": None})
    current = result.model_copy(update={"trials": (only,), "best": None})
    assert "needs 30 GiB" == compare(gpu_result(), current, parse_thresholds([])).failed


def test_a_comparison_as_markdown_equals_its_golden_file() -> None:
    texts = parse_thresholds(["peak_memory:+3%", "throughput:-5%", "step_time:+0.1s"])
    made = compare(gpu_result(), changed(peak=1.05, speed=0.97), texts)
    assert_golden("report/comparison.md", render_comparison(made))


@pytest.mark.parametrize(
    ("file", "render"), [("comparison.txt", render_text), ("comparison.json", render_json)]
)
def test_a_comparison_for_terminals_and_scripts_equals_its_golden_file(
    file: str, render: Callable[[Comparison], str]
) -> None:
    texts = parse_thresholds(["peak_memory:+3%", "throughput:-5%", "step_time:+0.1s"])
    made = compare(gpu_result(), changed(peak=1.05, speed=0.97), texts)
    assert_golden(f"report/{file}", render(made))


def measured_again(result: Result, *peaks: float) -> Result:
    """Return the result with repeats of its winner that have other peaks."""
    best = result.best_trial
    assert best is not None
    assert best.report.measurement is not None
    repeats = []
    for factor in peaks:
        other = changed(peak=factor).best_trial
        assert other is not None
        repeats.append(other.model_copy(update={"role": "confirmation"}))
    kept = tuple(t for t in result.trials if t.candidate.key != best.candidate.key)
    return result.model_copy(update={"trials": (*kept, best, *repeats)})


def test_what_repeats_differ_by_is_noise_and_their_median_counts() -> None:
    steady = measured_again(gpu_result(), 1.0, 1.0)
    shaky = measured_again(gpu_result(), 1.1, 1.05)
    row = compare(steady, shaky, parse_thresholds(["peak_memory:+3%"])).rows[0]
    assert "within noise" == row.verdict
    assert row.baseline is not None
    assert row.current is not None
    assert 1.05 == pytest.approx(row.current / row.baseline)
    assert 0.1 == pytest.approx(row.noise / row.baseline)


def test_a_quantity_as_noisy_as_large_is_called_so() -> None:
    current = gpu_result()
    assert current.speedup is not None
    wide = current.speedup.model_copy(update={"low": 0.01, "high": 50.0})
    current = current.model_copy(update={"speedup": wide})
    made = compare(gpu_result(), current, parse_thresholds(["throughput:-5%"]), speed="ratio")
    assert "too noisy" == made.rows[0].verdict


def test_a_change_larger_than_great_noise_is_still_a_regression() -> None:
    shaky = measured_again(gpu_result(), 1.0, 2.2)
    row = compare(shaky, changed(peak=3.5), parse_thresholds(["peak_memory:+3%"])).rows[0]
    assert row.baseline is not None
    assert row.noise >= row.baseline
    assert "regression" == row.verdict


def test_one_config_that_was_only_measured_is_compared_by_its_baseline_trial() -> None:
    result = gpu_result()
    best = result.best_trial
    assert best is not None
    alone = best.model_copy(update={"role": "baseline"})
    ending = Ending(outcome=Outcome.OOM_HOST, phase=Phase.STEADY, reason="the second time it died")
    report = best.report.model_copy(update={"ending": ending, "measurement": None})
    second = best.model_copy(update={"role": "confirmation", "report": report, "estimate": None})
    current = result.model_copy(update={"trials": (alone, second), "best": None})
    assert "the second time it died" == compare(result, current, parse_thresholds([])).failed


def test_a_refused_comparison_says_so_first() -> None:
    made = compare(gpu_result(), cpu_result(), parse_thresholds([]))
    assert render_comparison(made).startswith("### autotune compare: no verdict\n")


def test_a_variable_that_differs_is_named_and_refuses_nothing() -> None:
    def with_threads(variables: dict[str, str] | None) -> Result:
        result = gpu_result()
        found = result.environment.model_copy(update={"variables": variables})
        return result.model_copy(update={"environment": found})

    pair = (with_threads({"OMP_NUM_THREADS": "8"}), with_threads({}))
    made = compare(*pair, parse_thresholds([]))
    assert ("OMP_NUM_THREADS: 8 in the baseline, absent now",) == made.differences
    assert made.passed
    unknown = compare(with_threads(None), with_threads({}), parse_thresholds([]))
    assert () == unknown.differences
