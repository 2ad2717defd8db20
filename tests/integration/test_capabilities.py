"""What the preparing process finds out about machine and model, and what TRL says of options."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import EnvironmentUnable, NotBuiltYet
from autotune.core.job import DatasetSource, Job, Trainer
from autotune.knobs.catalog import KNOBS, knobs_of, user_candidate
from autotune.knobs.knob import OFFLINE
from autotune.knobs.needs import why_not
from autotune.knobs.translate import canonical, settings
from autotune.knobs.versions import spelled
from tests.support.facts import CPU, facts_of

pytestmark = pytest.mark.integration

VERSIONS = {name: version(name) for name in ("trl", "transformers", "torch", "peft")}


def test_an_installed_bitsandbytes_is_proved_by_a_quantized_layer() -> None:
    from autotune.probe.child.capabilities import lacking_here

    assert "bitsandbytes" not in lacking_here(CPU)


def test_a_bitsandbytes_that_does_not_work_stops_a_forced_option_before_any_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # BC38: built without the kernels of this machine.
    from autotune.probe.child.capabilities import lacking_here
    from autotune.probe.child.resolve import _check_packages

    def refuses(*_: Any, **__: Any) -> None:
        raise RuntimeError("no kernel image is available\nmore")

    monkeypatch.setattr("bitsandbytes.nn.Linear4bit", refuses)
    lacking = lacking_here(CPU)
    assert lacking["bitsandbytes"].endswith("does not work here: no kernel image is available")
    with pytest.raises(EnvironmentUnable, match="load_in_4bit=True needs the package") as caught:
        _check_packages({"load_in_4bit": True}, lacking)
    assert "pip install --upgrade 'autotune[bitsandbytes]'" in str(caught.value)


#: what lies in a folder of the path: (module, distribution and version, part of the reason)
BROKEN: dict[str, tuple[str, str, str, str]] = {
    "a library that torch has left behind": (
        "raise ImportError('flash_attn_2_cuda.so: undefined symbol: _ZN3c10')",
        "flash_attn",
        "flash_attn-2.8.3",
        "flash-attn is installed and cannot be imported: flash_attn_2_cuda.so: undefined symbol",
    ),
    "a version that is too old": (
        "",
        "liger_kernel",
        "liger_kernel-0.3.0",
        "liger-kernel 0.3.0 is installed, and at least 0.6 is needed",
    ),
    "a library without its GPU": (
        "raise RuntimeError('no CUDA runtime is found\\nmore')",
        "flash_attn",
        "flash_attn-2.8.3+cpu",
        "flash-attn is installed and cannot be imported: no CUDA runtime is found",
    ),
    "another package's module": (
        "",
        "flash_attn",
        "flash_attn_5-5.0",
        "the package flash-attn-4 is not installed",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_installed_package_that_cannot_be_used_is_lacking_with_the_reason(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # BC38: missing, broken, without its GPU, too old: once, before any probe.
    from autotune.probe.child.capabilities import lacking_here

    code, module, distribution, reason = BROKEN[case]
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text(code, encoding="utf-8")
    name, _, number = distribution.rpartition("-")
    (tmp_path / f"{distribution}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    (tmp_path / f"{distribution}.dist-info" / "METADATA").write_text(metadata, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert reason in " ".join(lacking_here(CPU).values())
    sys.modules.pop(module, None)


def test_models_are_told_apart_by_what_the_rules_ask() -> None:
    from transformers import Gemma2Config, LlamaConfig

    from autotune.probe.child.capabilities import traits_of

    assert frozenset() == traits_of(LlamaConfig())
    assert "softcap" in traits_of(Gemma2Config())
    assert "dropout" in traits_of(LlamaConfig(attention_dropout=0.1))


def test_a_model_of_images_is_refused_by_name(tmp_path: Path) -> None:
    # BC35
    from transformers import AutoTokenizer, LlavaConfig

    from autotune import demo
    from autotune.probe.child.model_facts import model_facts

    LlavaConfig().save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(str(demo.DEMO_DIR)).save_pretrained(tmp_path)
    job = Job(trainer=Trainer.SFT, model=str(tmp_path), dataset=DatasetSource(path="x"))
    with pytest.raises(NotBuiltYet, match="llava"):
        model_facts(job, {}, tmp_path)


@pytest.mark.parametrize("trainer", OFFLINE)
def test_every_choice_is_written_in_options_trl_has_and_does_not_warn_of(
    trainer: Trainer, tmp_path: Path
) -> None:
    from trl import ModelConfig

    from autotune.training.arguments import build_arguments, config_class

    known = {f.name for c in (config_class(trainer), ModelConfig) for f in dataclasses.fields(c)}
    facts = facts_of(trainer=trainer, versions=VERSIONS)
    own = canonical(user_candidate(facts), facts)
    plain = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False}
    for row in knobs_of(trainer):
        for choice in row.choices or (4,):
            if why_not(row, choice, facts):
                continue
            candidate = canonical(own.with_knobs(**{row.name: choice}), facts)
            options = {
                **plain,
                "gradient_checkpointing": True,
                **settings(candidate, facts).options,
            }
            written = spelled(options, VERSIONS)
            assert set(written) <= known, row.name
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                build_arguments(trainer, written)


def test_the_trainers_of_every_row_have_its_option() -> None:
    from trl import ModelConfig

    from autotune.training.arguments import config_class

    model = {f.name for f in dataclasses.fields(ModelConfig)}
    for row in KNOBS:
        if row.place == "environment":
            continue
        for trainer in row.trainers:
            known = model | {f.name for f in dataclasses.fields(config_class(trainer))}
            default = row.read(facts_of(trainer=trainer))
            assert set(row.write(default, facts_of(trainer=trainer))) <= known, row.name


def test_a_model_spread_over_gpus_is_said_not_to_be_what_is_measured() -> None:
    # BC11
    from autotune.probe.child.resolve import _check_device_map

    notices: list[str] = []
    _check_device_map({"model_init_kwargs": {"device_map": "auto"}}, notices)
    _check_device_map({"model_init_kwargs": {"use_cache": False}}, notices)
    assert 1 == len(notices)
    assert "device_map 'auto' is not measured" in notices[0]


def test_precision_is_resolved_once_and_names_a_gpu_without_bf16() -> None:
    # BC05
    from autotune.probe.child.resolve import resolve_options

    job = Job(trainer=Trainer.SFT, model="m", dataset=DatasetSource(path="x"))
    notices: list[str] = []
    options = resolve_options(job, CPU, notices, VERSIONS, {}, on_cpu=True)
    assert (True, []) == (options["bf16"], notices)
    old = CPU.model_copy(update={"name": "old CPU", "bf16": False})
    options = resolve_options(job, old, notices, VERSIONS, {}, on_cpu=True)
    assert (False, False) == (options["bf16"], options["fp16"])
    assert "old CPU" in notices[0]
    forced = job.model_copy(update={"options": {"bf16": True}})
    assert resolve_options(forced, old, notices, VERSIONS, {}, on_cpu=True)["bf16"]
    assert "bf16 is true, and old CPU" in notices[1]
