"""Products with weights of 4 or 8 bits do the arithmetic of the layer they stand for."""

from __future__ import annotations

import pytest

from autotune.predict.operations import flops_of, kind_of

TOKENS, INPUTS, OUTPUTS = 10, 64, 48


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", [(TOKENS, INPUTS), (INPUTS, OUTPUTS)]),
        ("gemm_4bit", [(2, 5, INPUTS), (INPUTS * OUTPUTS // 2, 1), (48,)]),
        ("int8_linear_matmul", [(TOKENS, INPUTS), (OUTPUTS, INPUTS)]),
        ("int8_scaled_mm", [(TOKENS, INPUTS), (OUTPUTS, INPUTS), (TOKENS,), (OUTPUTS,)]),
        ("int8_mixed_scaled_mm", [(TOKENS, INPUTS), (TOKENS, INPUTS), (OUTPUTS, INPUTS)]),
    ],
)
def test_every_form_of_one_layer_counts_the_same(name: str, shapes: list[tuple[int, ...]]) -> None:
    assert "matmul" == kind_of(name)
    assert 2 * TOKENS * INPUTS * OUTPUTS == flops_of(name, "matmul", shapes, causal=False)
