from __future__ import annotations

import numpy as np
import pytest

from autotune.core.time_model import FloatArray, fit

KNOWN = (0.02, 3e-5, 4e-9)
WIDTH = np.asarray([64.0, 128, 256, 512, 1024, 96, 700, 300])
TOKENS = WIDTH * np.asarray([1.0, 4, 2, 8, 2, 1, 3, 5])


def seconds_of(tokens: FloatArray, width: FloatArray) -> FloatArray:
    a, b, c = KNOWN
    return a + b * tokens + c * tokens * width


def test_known_coefficients_are_recovered() -> None:
    model = fit(seconds_of(TOKENS, WIDTH), TOKENS, WIDTH)
    assert KNOWN == pytest.approx(model.coefficients, rel=1e-6)
    assert model.spread_ratio == pytest.approx(0.0, abs=1e-9)


def test_one_disturbed_step_hardly_moves_the_model() -> None:
    seconds = seconds_of(TOKENS, WIDTH)
    seconds[3] *= 40.0
    model = fit(seconds, TOKENS, WIDTH)
    expected = seconds_of(TOKENS, WIDTH).sum()
    assert expected == pytest.approx(model.seconds(TOKENS, WIDTH).sum(), rel=0.05)


def test_no_coefficient_is_negative_whatever_the_noise() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        seconds = seconds_of(TOKENS, WIDTH) * rng.uniform(0.5, 2.0, len(TOKENS))
        assert min(fit(seconds, TOKENS, WIDTH).coefficients) >= 0.0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_steps_are_enough_to_say_how_long_those_steps_take(count: int) -> None:
    seconds = seconds_of(TOKENS, WIDTH)[:count]
    model = fit(seconds, TOKENS[:count], WIDTH[:count])
    assert seconds == pytest.approx(model.seconds(TOKENS[:count], WIDTH[:count]), rel=0.05)


def test_steps_of_one_shape_take_their_middle_time() -> None:
    same = np.full(8, 512.0)
    seconds = np.asarray([1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 5.0])
    model = fit(seconds, same, same)
    assert model.seconds(same[:1], same[:1])[0] == pytest.approx(1.0, rel=0.02)
