"""What a product with a 4-bit or 8-bit weight holds on CUDA, in bytes worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.predict.request import Target
from tests.support.models import tiny_model
from tests.support.traced import SMALL, traced

pytestmark = pytest.mark.integration

#: Rows, inputs and outputs of a layer.
M, K, N = 64, 128, 256
Product = Callable[[Any], Any]


def held(target: Target, option: str, product: Product) -> tuple[list[int], int, int]:
    """Return what each pass holds at most, what stays after the first, and what it multiplies."""
    import torch

    from autotune.predict.follow import Follow
    from autotune.predict.ledger import Ledger, Segment, as_asked
    from autotune.predict.operations import WorkSums
    from autotune.predict.target_rules import applied, rules_for

    follow = Follow(Ledger())
    rules = [r for r in rules_for(target, {option: True}) if r.name.startswith("products")]
    with applied(rules, follow), follow:
        x = torch.empty(M, K, dtype=torch.bfloat16, requires_grad=True)
        run = product(x)
        follow.work = WorkSums()
        before = [follow.ledger.held_bytes(as_asked)]
        follow.ledger.mark(Segment("forward"))
        y = run()
        kept = follow.ledger.held_bytes(as_asked) - before[0]
        flops = sum(w.flops for w in follow.work.work() if w.kind == "matmul")
        gradient = torch.empty_like(y)
        before.append(follow.ledger.held_bytes(as_asked))
        follow.ledger.mark(Segment("backward"))
        y.backward(gradient)
    tops = [int(height.total_bytes) for height in follow.ledger.heights(as_asked)[1:]]
    return [top - b for top, b in zip(tops, before, strict=True)], kept, flops


def in_8bit(x: Any) -> Any:
    import bitsandbytes as bnb
    import torch

    state = bnb.MatmulLtState()
    state.has_fp16_weights, state.threshold = False, 6.0
    state.CB = x.new_empty(N, K, dtype=torch.int8)
    state.SCB = x.new_empty(N, dtype=torch.float32)
    return lambda: bnb.matmul(x, state.CB, state=state)


def in_4bit(x: Any) -> Any:
    import bitsandbytes as bnb
    import torch

    weight = x.new_empty(N * K // 2, 1, dtype=torch.uint8)
    state = bnb.functional.QuantState(
        absmax=x.new_empty(N * K // 64, dtype=torch.float32),
        shape=torch.Size((N, K)),
        code=x.new_empty(16, dtype=torch.float32),
        blocksize=64,
        quant_type="nf4",
        dtype=torch.bfloat16,
    )
    return lambda: bnb.matmul_4bit(x, weight, state)


def test_an_8bit_product_holds_int8_inputs_int32_sums_and_fp16_on_cuda() -> None:
    tops, kept, flops = held("cuda", "load_in_8bit", in_8bit)
    inputs, scales, out = M * K, 4 * M, M * N
    assert inputs + scales + (4 + 2 + 2) * out == tops[0]
    assert 2 * out == kept  # the input itself is the caller's
    assert 2 * M * K * N == flops
    # backward: the weight in the input's dtype, and the gradient of the input
    assert 2 * N * K + 2 * M * K == tops[1]


def test_an_8bit_product_dequantises_its_weight_on_the_cpu() -> None:
    tops, kept, _ = held("cpu", "load_in_8bit", in_8bit)
    assert 2 * N * K + 2 * M * N == tops[0]
    assert 2 * M * N == kept
    assert 2 * N * K + 2 * M * K == tops[1]


def test_a_4bit_product_dequantises_its_weight_in_both_passes() -> None:
    tops, kept, flops = held("cuda", "load_in_4bit", in_4bit)
    assert 2 * N * K + 2 * M * N == tops[0]
    assert 2 * M * N == kept
    assert 2 * M * K * N == flops
    assert 2 * N * K + 2 * M * K == tops[1]


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_a_trace_for_cuda_meets_the_products_that_a_trace_for_the_cpu_does_not(
    tmp_path: Path, bits: str
) -> None:
    model = tiny_model(tmp_path / "model", **SMALL)
    options = {"use_peft": True, "dtype": "bfloat16", f"load_in_{bits}": True}
    said = {"4bit": "4-bit layers hold a dequantised copy", "8bit": "8-bit layers quantise their"}
    cuda, cpu = (traced(model, options, target=t) for t in ("cuda", "cpu"))
    assert any(said[bits] in note for note in cuda.notes)
    assert not any(said[bits] in note for note in cpu.notes)
    integers = {w.dtype for w in cuda.micro_step if w.kind == "matmul"}
    assert ("int32" in integers) == (bits == "8bit")
