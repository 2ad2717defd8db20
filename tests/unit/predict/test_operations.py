"""What one operation costs: its kind, arithmetic and traffic."""

from __future__ import annotations

import pytest

from autotune.predict.operations import WorkSums, flops_of, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mm", "matmul"),
        ("_grouped_mm", "matmul"),
        ("_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("_softmax", "reduction"),
        ("embedding", "gather"),
        ("_to_copy", "copy"),
        ("silu", "elementwise"),
        ("something_new", "elementwise"),
    ],
)
def test_an_operator_has_a_kind(name: str, kind: str) -> None:
    assert kind == kind_of(name)


def test_a_product_counts_multiply_and_add_apart() -> None:
    assert 2 * 3 * 5 * 7 == flops_of("mm", "matmul", [(3, 5), (5, 7)], False)
    assert 2 * 4 * 3 * 5 * 7 == flops_of("bmm", "matmul", [(4, 3, 5), (4, 5, 7)], False)
    assert 2 * 3 * 5 * 7 == flops_of("addmm", "matmul", [(7,), (3, 5), (5, 7)], False)


def test_attention_is_two_products_forward_and_five_backward_and_half_where_it_is_causal() -> None:
    query, key = (2, 4, 16, 8), (2, 4, 16, 8)
    product = 2 * 2 * 4 * 16 * 16 * 8
    forward, backward = "_scaled_dot_product_x", "_scaled_dot_product_x_backward"
    assert 2 * product == flops_of(forward, "attention", [query, key, key], False)
    assert product == flops_of(forward, "attention", [query, key, key], True)
    assert 5 * product == flops_of(backward, "attention", [query, query, key, key], False)


def test_copies_and_gathers_compute_nothing() -> None:
    assert 0 == flops_of("clone", "copy", [(9, 9)], False)
    assert 0 == flops_of("embedding", "gather", [(100, 8), (4,)], False)


def test_work_is_added_up_by_kind_and_dtype() -> None:
    sums = WorkSums()
    sums.add("matmul", "torch.bfloat16", 10, 100)
    sums.add("matmul", "torch.bfloat16", 10, 100)
    sums.add("copy", "torch.float32", 0, 500)
    first, second = sums.work()
    assert ("copy", 500, 1) == (first.kind, first.moved_bytes, first.launches)
    assert ("bfloat16", 20, 2) == (second.dtype, second.flops, second.launches)
