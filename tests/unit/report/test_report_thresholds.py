from __future__ import annotations

import pytest

from autotune.core.errors import BadInput
from autotune.report import parse_thresholds
from autotune.report.thresholds import parse_threshold


@pytest.mark.parametrize(
    ("text", "name", "allowed"),
    [
        ("peak_memory:+3%", "peak_memory", 30.0),
        ("peak_memory.process:+200MiB", "peak_memory.process", 200 * 2**20),
        (" peak_memory.device : + 1GB ", "peak_memory.device", 1e9),
        ("throughput:-5%", "throughput", 50.0),
        ("step_time:+0.1s", "step_time", 0.1),
        ("step_time:+20ms", "step_time", 0.02),
        ("step_time:+2.5%", "step_time", 25.0),
        ("peak_memory:+0%", "peak_memory", 0.0),
    ],
)
def test_a_threshold_says_how_much_worse_is_allowed(text: str, name: str, allowed: float) -> None:
    threshold = parse_threshold(text)
    assert (name, pytest.approx(allowed)) == (threshold.name, threshold.allowed_change(1000.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("peak_memory", "for example"),
        ("peak_memry:+3%", "did you mean 'peak_memory'"),
        ("peak_memory.alocated:+3%", "did you mean 'allocated'"),
        ("throughput.process:-3%", "Only peak_memory has parts"),
        ("throughput:+5%", "Write throughput:-5%"),
        ("peak_memory:-3%", r"Write peak_memory:\+3%"),
        ("throughput:-5", "unit ''"),
        ("step_time:+3GiB", "unit 'GiB'"),
        ("peak_memory:+3", "unit ''"),
        ("peak_memory:+3parsec", "3parsec"),
        ("throughput:-5.5.5%", "no number"),
        ("throughput:-100%", "never reached"),
        ("", "for example"),
    ],
)
def test_a_text_that_is_no_threshold_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_threshold(text)


def test_two_thresholds_for_one_quantity_are_refused() -> None:
    with pytest.raises(BadInput, match="throughput has 2 thresholds"):
        parse_thresholds(["throughput:-5%", "throughput:-9%"])


def test_no_threshold_means_the_default_ones() -> None:
    assert ["peak_memory", "throughput"] == [t.name for t in parse_thresholds([])]
