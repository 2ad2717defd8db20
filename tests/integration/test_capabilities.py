"""What the preparing process finds out about machine and model, and what TRL says of options."""

from __future__ import annotations

import dataclasses
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
    assert "pip install 'autotune[bitsandbytes]'" in str(caught.value)


def test_models_are_told_apart_by_what_the_rules_ask() -> None:
    from transformers import Gemma2Config, LlamaConfig, MixtralConfig, XGLMConfig

    from autotune.probe.child.capabilities import traits_of

    assert frozenset() == traits_of(LlamaConfig())
    assert "softcap" in traits_of(Gemma2Config())
    assert "dropout" in traits_of(LlamaConfig(attention_dropout=0.1))
    assert {"no-lora-targets", "stacked-experts"} <= traits_of(MixtralConfig())
    assert {"no-sdpa", "no-flex", "no-flash"} <= traits_of(XGLMConfig())


def test_stacked_experts_are_those_of_the_installed_peft() -> None:
    from peft.utils.transformers_weight_conversion import (
        _MODEL_TO_CONVERSION_PATTERN,
        _MOE_TARGET_MODULE_MAPPING,
    )
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from autotune.probe.child.capabilities import _STACKED_EXPERTS

    like = _MODEL_TO_CONVERSION_PATTERN
    stacked = {name for name in like if like[name] in _MOE_TARGET_MODULE_MAPPING}
    assert stacked & MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() == _STACKED_EXPERTS


def test_positions_are_found_by_whatever_name_a_config_has(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, GPT2Config

    from autotune import demo
    from autotune.probe.child.model_facts import model_facts

    GPT2Config(n_positions=24).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(str(demo.DEMO_DIR)).save_pretrained(tmp_path)
    job = Job(trainer=Trainer.SFT, model=str(tmp_path), dataset=DatasetSource(path="x"))
    assert 24 == model_facts(job, {}, tmp_path)[0].positions


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
