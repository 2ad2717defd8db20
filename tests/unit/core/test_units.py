from __future__ import annotations

import pytest

from autotune.core.errors import BadInput
from autotune.core.units import (
    parse_bytes,
    parse_duration,
    parse_ratio,
    show_bytes,
    show_duration,
    show_ratio,
)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (22 * 2**30, "22GiB"),
        (512 * 2**20, "512 MiB"),
        (24 * 10**9, "24GB"),
        (int(1.5 * 2**30), " 1.5 gib "),
        (2**20, "1048576"),
        (2**40, "1TiB"),
    ],
)
def test_a_size_is_read_in_bytes(expected: int, text: str) -> None:
    assert expected == parse_bytes(text)


@pytest.mark.parametrize(
    "text",
    [
        "lots", "", "22", "-1GiB", "0GiB", "22GiBs", "1e9", "nan", "inf", "GiB", "22 GiB 3",
        "1,5GiB", "9" * 400 + "GiB", "0.0000001B",
    ],
)  # fmt: skip
def test_a_text_that_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_bytes(text, "--memory")
    assert str(caught.value).startswith("--memory is ")


def test_a_bare_number_is_refused_because_its_unit_is_anybodys_guess() -> None:
    with pytest.raises(BadInput, match="22GiB"):
        parse_bytes("22")


@pytest.mark.parametrize(
    ("expected", "text"), [(0.05, "5%"), (0.05, "0.05"), (1.0, "100%"), (0.0, "0")]
)
def test_a_share_is_read_as_a_ratio(expected: float, text: str) -> None:
    assert expected == pytest.approx(parse_ratio(text))


@pytest.mark.parametrize("text", ["five", "5", "101%", "-5%", "5 per cent", "", "nan"])
def test_a_text_that_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--headroom"):
        parse_ratio(text, "--headroom")


@pytest.mark.parametrize(
    ("expected", "text"),
    [(90.0, "90s"), (600.0, "10m"), (5400.0, "1.5h"), (30.0, "30"), (120.0, "2 min")],
)
def test_a_duration_is_read_in_seconds(expected: float, text: str) -> None:
    assert expected == parse_duration(text)


@pytest.mark.parametrize("text", ["soon", "0s", "-1m", "10 days", "", "1:30"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="10m"):
        parse_duration(text)


def test_sizes_are_written_in_mib_below_one_gib_and_in_gib_above() -> None:
    assert show_bytes(512 * 2**20) == "512.0 MiB"
    assert show_bytes(3 * 2**29) == "1.50 GiB"


def test_durations_are_written_for_people() -> None:
    shown = [show_duration(s) for s in (0.42, 12, 185, 3599.7, 7800)]
    assert shown == ["0.42 s", "12 s", "3 min 05 s", "1 h 00 min", "2 h 10 min"]


def test_a_loss_is_never_rounded_up_to_the_whole() -> None:
    assert show_ratio(0.9999) == "99.9 %"
    assert show_ratio(1.0) == "100.0 %"
    assert show_ratio(0.9949) == "99.5 %"
