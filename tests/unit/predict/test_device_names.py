"""Devices are found by what people and drivers call them, and by nothing else."""

from __future__ import annotations

import pytest

from autotune.core.cuda_memory import usual_context_bytes
from autotune.core.errors import BadInput
from autotune.predict.devices.catalogue import CATALOGUE
from autotune.predict.devices.lookup import find_device


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rtx-4090", "RTX-4090"),
        ("RTX4090", "RTX-4090"),
        ("4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("rtx 5090 32GB", "RTX-5090"),
        ("a100-80", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", "A10G"),
        ("AMD Instinct MI300X OAM", "MI300X"),
    ],
)
def test_a_device_is_found_by_every_common_spelling(typed: str, meant: str) -> None:
    assert meant == find_device(typed).name


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda s: s.name)
def test_every_device_is_found_by_the_name_it_is_shown_with(spec) -> None:  # type: ignore[no-untyped-def]
    assert spec is find_device(spec.name)


def test_a_name_that_comes_in_two_sizes_asks_which() -> None:
    with pytest.raises(BadInput, match="a100-40gb or a100-80gb"):
        find_device("a100")


@pytest.mark.parametrize("typed", ["rtx-4009", "NVIDIA GeForce RTX 4090 Laptop GPU"])
def test_a_misspelt_or_other_device_names_the_nearest(typed: str) -> None:
    with pytest.raises(BadInput, match="did you mean 'rtx4090'"):
        find_device(typed)


def test_a_size_the_device_does_not_come_in_is_refused() -> None:
    with pytest.raises(BadInput, match="not in the catalogue"):
        find_device("h100 96gb")


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda s: s.name)
def test_memory_seen_is_below_the_label_and_the_context_below_that(spec) -> None:  # type: ignore[no-untyped-def]
    assert 0.88 * spec.label_gb * 2**30 < spec.total_bytes <= spec.label_gb * 2**30
    assert spec.total_bytes - usual_context_bytes(spec.capability) == spec.usable_bytes
    assert spec.fp32 <= spec.fp16
    assert spec.source
