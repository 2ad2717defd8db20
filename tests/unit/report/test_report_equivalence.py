"""Every report for people says whether the winner trains what its reference trains."""

from __future__ import annotations

import pytest

from autotune.report import REPORTERS
from tests.support.results import gpu_result

SAID = "trains what the reference trains: one update on the same 4,096 label tokens"


@pytest.mark.parametrize("name", ["html", "markdown"])
def test_the_comparison_is_a_sentence_of_the_report(name: str) -> None:
    result = gpu_result().model_copy(update={"equivalence": SAID})
    assert f"T{SAID[1:]}." in REPORTERS[name].render(result)
    assert "rains what the reference" not in REPORTERS[name].render(gpu_result())
