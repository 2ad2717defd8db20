"""What choices and the user's own options ask of machine and packages."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from autotune.core.job import Trainer
from autotune.knobs.catalog import BY_NAME, KNOBS, knobs_of
from autotune.knobs.needs import PACKAGES, missing_package, too_old, why_not
from tests.support.facts import CPU, GPU, facts_of

ROOT = Path(__file__).parents[3]
ABSENT = {name: f"the package {name} is not installed" for name in PACKAGES}
OLD_GPU = GPU.model_copy(update={"name": "Tesla T4", "capability": "7.5", "bf16": False})

#: option: (options, the package they ask for)
ASKS: dict[str, tuple[dict[str, Any], str]] = {
    "4-bit weights": ({"load_in_4bit": True}, "bitsandbytes"),
    "an 8-bit optimizer": ({"optim": "adamw_8bit"}, "bitsandbytes"),
    "a paged optimizer": ({"optim": "paged_adamw_32bit"}, "bitsandbytes"),
    "flash attention": ({"attn_implementation": "flash_attention_2"}, "flash-attn"),
    "a later flash attention": ({"attn_implementation": "flash_attention_3"}, "flash-attn-3"),
    "flash attention by keyword": (
        {"model_init_kwargs": {"attn_implementation": "flash_attention_2"}},
        "flash-attn",
    ),
    "a kernel from the hub": ({"attn_implementation": "kernels-community/flash-attn2"}, "kernels"),
    "layer kernels": ({"model_init_kwargs": {"use_kernels": True}}, "kernels"),
    "Liger": ({"use_liger_kernel": True}, "liger-kernel"),
}


@pytest.mark.parametrize("case", ASKS)
def test_an_option_the_user_forces_names_its_package(case: str) -> None:
    # BC38: once, before any probe.
    options, package = ASKS[case]
    found = missing_package(options, ABSENT)
    assert found is not None
    assert package == found[0].package
    assert missing_package(options, {}) is None


@pytest.mark.parametrize(
    ("attention", "least"),
    [
        ("flash_attention_2", "8.0"),
        ("flash_attention_3", "9.0"),
        ("kernels-community/flash-attn2", "8.0"),
        ("kernels-community/vllm-flash-attn3", "9.0"),
    ],
)
def test_an_option_of_the_users_that_a_gpu_is_too_old_for_is_named(
    attention: str, least: str
) -> None:
    found = too_old({"attn_implementation": attention}, OLD_GPU)
    assert f"attn_implementation={attention} cannot run" in found
    assert least in found and "Tesla T4 has 7.5" in found
    assert "" == too_old({"attn_implementation": attention}, CPU)
    unknown = OLD_GPU.model_copy(update={"capability": None})
    assert "" == too_old({"attn_implementation": attention}, unknown)
    assert "" == too_old({"attn_implementation": "sdpa"}, OLD_GPU)


def test_options_that_need_nothing_miss_nothing() -> None:
    plain = {"optim": "adamw_torch_fused", "attn_implementation": "sdpa", "load_in_4bit": False}
    assert missing_package(plain, ABSENT) is None
    assert missing_package({"optim": "adamw_torch_8bit"}, ABSENT) is None


def test_a_package_that_is_there_and_does_not_work_is_the_reason() -> None:
    broken = {"bitsandbytes": "bitsandbytes is installed and does not work here: no kernel image"}
    facts = facts_of(device=GPU, lacking=broken)
    assert "no kernel image" in why_not(BY_NAME["quantization"], "4bit", facts)
    assert "no kernel image" in why_not(BY_NAME["optim"], "adamw_8bit", facts)
    assert not why_not(BY_NAME["quantization"], "none", facts)


def test_what_needs_an_accelerator_is_not_for_the_cpu() -> None:
    # BC42: the knob goes, it does not fail in every probe.
    for name, choice in (
        ("activation_offloading", True),
        ("attn_implementation", "flex_attention"),
        ("allocator", "expandable_segments"),
        ("torch_empty_cache_steps", 10),
        ("optim", "paged_adamw_8bit"),
    ):
        assert "accelerator" in why_not(BY_NAME[name], choice, facts_of(device=CPU))
        assert not why_not(BY_NAME[name], choice, facts_of(device=GPU))


def test_offloading_needs_a_host_memory_apart() -> None:
    shared = {"memory of its own": "GB10 has no memory of its own to spare"}
    reason = why_not(BY_NAME["activation_offloading"], True, facts_of(device=GPU, lacking=shared))
    assert "GB10" in reason


def test_a_gpu_without_bf16_is_named_with_its_capability() -> None:
    reason = why_not(BY_NAME["dtype"], "bfloat16", facts_of(device=OLD_GPU))
    assert "Tesla T4" in reason
    assert "7.5" in reason


@pytest.mark.parametrize("flash", ["flash_attention_2", "kernels-community/flash-attn2"])
def test_flash_attention_is_not_for_a_gpu_older_than_it(flash: str) -> None:
    row = BY_NAME["attn_implementation"]
    assert "it needs compute capability 8.0 or more, and Tesla T4 has 7.5" == why_not(
        row, flash, facts_of(device=OLD_GPU)
    )
    newer = GPU.model_copy(update={"capability": "10.0"})
    assert not why_not(row, flash, facts_of(device=newer))


def test_attention_that_is_compiled_needs_a_compiler() -> None:
    facts = facts_of(device=GPU, lacking={"compiler": "there is no compiler"})
    reason = why_not(BY_NAME["attn_implementation"], "flex_attention", facts)
    assert "there is no compiler" == reason


def test_the_oldest_versions_are_those_of_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    ours = {name: package.least for name, package in PACKAGES.items() if package.least}
    assert {name: f"{name}>={least}" for name, least in ours.items()} == {
        name: extras[name][0] for name in ours
    }


def test_every_need_is_of_a_choice_the_knob_has() -> None:
    for row in KNOBS:
        assert set(row.needs) <= set(row.choices or ())


def test_the_online_trainers_have_no_row_yet() -> None:
    for trainer in (Trainer.GRPO, Trainer.RLOO, Trainer.ONLINE_DPO):
        assert () == knobs_of(trainer)
