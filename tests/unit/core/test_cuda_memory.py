"""What CUDA takes beside tensors, by architecture."""

from __future__ import annotations

import pytest

from autotune.core.cuda_memory import (
    may_be_context,
    usual_context_bytes,
    workspace_bytes,
)

CAPABILITIES = (None, "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0", "8.7")


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_usual_context_is_one_a_measurement_may_find(capability: str | None) -> None:
    usual = usual_context_bytes(capability)
    assert may_be_context(usual, capability)
    assert not may_be_context(usual // 3, capability)
    assert not may_be_context(3 * 2**30, capability)


def test_an_architecture_nothing_was_found_for_takes_the_largest_of_the_others() -> None:
    known = max(usual_context_bytes(one) for one in CAPABILITIES)
    assert known == usual_context_bytes("9.0") == usual_context_bytes(None)
    assert usual_context_bytes("8.6") < known
    assert usual_context_bytes("7.0") == usual_context_bytes("7.5")


@pytest.mark.parametrize(
    ("mib", "capability"),
    [(16.25, "7.5"), (16.25, "8.9"), (64, "9.0"), (64, "10.0"), (64, "12.0"), (16.25, None)],
)
def test_cublas_takes_more_on_hopper_and_blackwell(mib: float, capability: str | None) -> None:
    assert int(mib * 2**20) == workspace_bytes(capability)
