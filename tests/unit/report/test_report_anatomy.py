"""What a peak is made of, what was predicted of it, and what would make it smaller."""

from __future__ import annotations

import pytest

from autotune.core.job import Trainer
from autotune.core.result import Result
from autotune.core.traced_step import Component
from autotune.core.units import show_bytes
from autotune.report import REPORTERS
from autotune.report.anatomy import OFFLOADED, UNTOLD, anatomy
from autotune.report.chart_predicted import absent, predicted_peaks, predicted_times
from autotune.report.chart_split import split
from autotune.report.charts import charts
from autotune.report.levers import dominance, levers
from tests.support.facts import candidate_of
from tests.support.results import (
    GIB,
    cpu_result,
    gpu_result,
    nothing_fits_result,
    predicted_result,
    preference_result,
    split_of,
)


def sizes(result: Result, whose: str = "best") -> dict[str, int]:
    trial = result.best_trial if whose == "best" else result.reference_trial
    assert trial is not None
    return {part.name: part.size_bytes for part in anatomy(result, trial)}


@pytest.mark.parametrize("whose", ["best", "reference"])
def test_the_parts_of_a_traced_peak_add_up_to_what_was_measured(whose: str) -> None:
    result = predicted_result()
    trial = result.best_trial if whose == "best" else result.reference_trial
    assert trial is not None and trial.report.measurement is not None
    found = sizes(result, whose)
    assert trial.report.measurement.peaks.deciding_bytes == sum(found.values())
    names = ["weights", "gradients", "optimizer states", "saved activations", "logits and loss"]
    assert [*names, "context, allocator"] == list(found)


def test_without_a_trace_only_the_weights_are_told_apart_and_that_is_said() -> None:
    found = sizes(cpu_result())
    assert {"weights", UNTOLD} == set(found)
    chart = split(cpu_result())
    assert chart is not None and "the rest is not told apart" in chart.caption
    assert "nothing was predicted in this run" in absent(cpu_result())


def test_a_reference_model_is_a_part_of_its_own_with_its_dtype() -> None:
    # BC08: policy and reference apart, each with its dtype, in the page and in a comment.
    result = preference_result(Trainer.DPO)
    chart = split(result)
    assert chart is not None and chart.key is not None
    rows = {name: texts for _, name, texts in chart.key.rows}
    assert all("bfloat16" in text for text in rows["reference model"])
    assert all("float32" in text for text in rows["weights"])
    said = "Weights: policy 95.4 MiB in float32, reference model 47.7 MiB in bfloat16."
    for name in ("html", "markdown", "junit"):
        assert said in REPORTERS[name].render(result)
    assert "policy" not in REPORTERS["markdown"].render(preference_result(Trainer.REWARD))


def test_what_is_offloaded_is_drawn_apart_from_the_device() -> None:
    best = gpu_result().best
    assert best is not None
    traced = {best: split_of(16 * GIB, offloaded_bytes=3 * GIB)}
    result = gpu_result().model_copy(update={"traced": traced})
    assert 3 * GIB == sizes(result)[OFFLOADED]
    chart = split(result)
    assert chart is not None
    patterns = [trace["name"] for trace in chart.figure["data"] if "pattern" in trace["marker"]]
    assert [OFFLOADED] == patterns
    assert chart.key is not None
    sums, beside = chart.key.rows[-2:]
    peak = result.best_trial.report.measurement.peaks.deciding_bytes  # type: ignore[union-attr]
    assert ("together", show_bytes(peak or 0)) == (sums[1], sums[2][0])
    assert (OFFLOADED, "3.00 GiB") == (beside[1], beside[2][0])


def test_where_nothing_fits_your_config_and_the_nearest_are_shown() -> None:
    result = nothing_fits_result()
    traced = {t.candidate.key: split_of(9 * GIB) for t in result.trials}
    chart = split(result.model_copy(update={"traced": traced}))
    assert chart is not None and chart.key is not None
    assert ("your config", "nearest") == chart.key.heads
    assert split(result) is None


def test_predictions_stand_against_what_was_measured_with_their_band() -> None:
    result = predicted_result()
    peaks, times = predicted_peaks(result), predicted_times(result)
    assert peaks is not None and times is not None
    fitting = [t for t in result.trials if t.estimate is not None and t.role != "confirmation"]
    for chart in (peaks, times):
        assert len(fitting) == len(chart.figure["data"][1]["x"])
    drawn = peaks.figure["data"][1]
    assert [1.0 + 0.02 * t.number for t in fitting] == pytest.approx(
        [predicted / measured for measured, predicted in zip(drawn["x"], drawn["y"], strict=True)]
    )
    assert "1 more were predicted not to fit and not probed" in peaks.caption
    assert "" == absent(result)


def test_a_peak_traced_after_the_search_is_compared_uncorrected_and_that_is_said() -> None:
    chart = predicted_peaks(preference_result(Trainer.DPO))
    assert chart is not None and "not corrected" in chart.caption
    assert predicted_times(preference_result(Trainer.DPO)) is None


def test_what_was_traced_afterwards_never_stands_among_what_was_said_before() -> None:
    result = predicted_result()
    first, *others = result.trials
    assert first.prediction is not None
    late = result.model_copy(
        update={
            "trials": (first.model_copy(update={"prediction": None}), *others),
            "traced": {first.candidate.key: split_of(9 * GIB)},
        }
    )
    whole, part = predicted_peaks(result), predicted_peaks(late)
    assert whole is not None and part is not None
    assert len(whole.figure["data"][1]["x"]) - 1 == len(part.figure["data"][1]["x"])


def test_every_chart_of_a_page_has_a_name_of_its_own() -> None:
    names = [chart.name for chart in charts(predicted_result())]
    assert ["pareto", "split", "memory", "predicted-peak", "predicted-time", "lengths"] == names


@pytest.mark.parametrize(
    ("component", "knobs", "advised", "done_already"),
    [
        ("activations", {"gradient_checkpointing": "none"}, "checkpoint them", None),
        ("activations", {"gradient_checkpointing": "full"}, "micro-batch", "checkpoint"),
        ("activations", {"gradient_checkpointing": "selective"}, "all of them", "checkpoint them"),
        ("activations", {"per_device_train_batch_size": 1}, "shorter", "halve"),
        ("activations", {"activation_offloading": True}, "shorter", "host memory"),
        ("weights", {}, "bfloat16", None),
        ("weights", {"dtype": "bfloat16"}, "4-bit", "bfloat16"),
        ("weights", {"quantization": "4bit", "peft": "lora"}, "smaller model", "4-bit"),
        ("optimizer", {"optim": "adamw_8bit"}, "adapter", "8-bit"),
        ("gradients", {"peft": "lora"}, "lora_r", "train an adapter"),
        ("logits", {"per_device_train_batch_size": 1}, "shorter", "halve"),
    ],
)
def test_what_a_candidate_does_already_is_not_advised_again(
    component: Component, knobs: dict[str, str | int], advised: str, done_already: str | None
) -> None:
    said = levers(component, candidate_of(**{"activation_offloading": False, **knobs}))
    assert advised in said
    assert done_already is None or done_already not in said


def test_a_peak_that_is_mostly_context_has_no_lever() -> None:
    few: dict[Component, int] = {"weights": GIB // 100, "temporaries": GIB // 50}
    said = dominance(few, GIB, candidate_of())
    assert "What no option changes (context, allocator) takes 97% of the peak." == said
    assert "Temporaries take 67% of the peak" in dominance(few, 0, candidate_of())
