"""What the preparing process finds out about machine and model, and what TRL says of options."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import BadInput, EnvironmentUnable, NotBuiltYet
from autotune.core.job import DatasetSource, Job, Trainer
from autotune.core.positions import Positions
from autotune.knobs.catalog import KNOBS, knobs_of, user_candidate
from autotune.knobs.knob import OFFLINE
from autotune.knobs.needs import why_not
from autotune.knobs.translate import canonical, settings
from autotune.knobs.versions import spelled
from tests.support.facts import CPU, GPU, facts_of
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration

EXPERTS = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}

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
        _check_packages({"load_in_4bit": True}, lacking, CPU)
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
    from transformers import Gemma2Config, LlamaConfig, MixtralConfig, XGLMConfig

    from autotune.probe.child.capabilities import traits_of

    assert frozenset({"no-aux-loss"}) == traits_of(LlamaConfig())
    assert frozenset() == traits_of(MixtralConfig())
    assert "no-aux-loss" in traits_of(MixtralConfig(router_aux_loss_coef=0.0))
    assert "softcap" in traits_of(Gemma2Config())
    assert "dropout" in traits_of(LlamaConfig(attention_dropout=0.1))
    assert {"no-sdpa", "no-flex", "no-flash"} <= traits_of(XGLMConfig())


def test_adapters_are_tried_on_the_model_before_any_probe(tmp_path: Path) -> None:
    from autotune.training.adapters import unfit_adapters

    dense, experts = tiny_model(tmp_path / "dense"), tiny_model(tmp_path / "experts", **EXPERTS)
    forms: dict[str, Any] = {"targets": (None, "all-linear", "q_proj,v_proj"), "folder": tmp_path}
    plain = {"use_peft": True, "lora_dropout": 0.0}
    assert {} == unfit_adapters(Trainer.DPO, {}, model_dir=dense, **forms)
    assert {} == unfit_adapters(Trainer.REWARD, {}, model_dir=dense, **forms)
    found = unfit_adapters(Trainer.SFT, {}, model_dir=experts, **forms)
    assert "lora_dropout != 0" in found["lora on all-linear"]
    assert "lora on q_proj,v_proj" not in found
    undropped = unfit_adapters(Trainer.SFT, plain, model_dir=experts, **forms)
    assert "lora on all-linear" not in undropped
    assert "use_dora" in undropped["dora on all-linear"]


def test_weights_stored_quantized_are_refused_since_random_ones_would_not_be(
    tmp_path: Path,
) -> None:
    from autotune.probe.child.model_facts import model_facts

    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    model = tiny_model(tmp_path / "model", quantization_config=stored)
    job = Job(trainer=Trainer.SFT, model=str(model), dataset=DatasetSource(path="x"))
    with pytest.raises(NotBuiltYet, match=r"stored quantized \(bitsandbytes\)"):
        model_facts(job, {}, tmp_path)


def test_keywords_that_change_the_model_change_what_is_measured(tmp_path: Path) -> None:
    from autotune.probe.child.model_facts import model_facts

    model = tiny_model(tmp_path / "model")
    job = Job(trainer=Trainer.SFT, model=str(model), dataset=DatasetSource(path="x"))
    shorter = {"model_init_kwargs": {"max_position_embeddings": 96, "device_map": "auto"}}
    facts, config, _ = model_facts(job, shorter, tmp_path / "run")
    assert facts.positions is not None
    assert (96, 96) == (facts.positions.most, config.max_position_embeddings)
    with pytest.raises(BadInput, match=r"'num_hidden_layers': 7.*do not fit"):
        model_facts(job, {"model_init_kwargs": {"num_hidden_layers": 7}}, tmp_path / "deep")


@pytest.mark.parametrize(
    ("said", "stored", "dtype"),
    [("auto", "bfloat16", "bfloat16"), (None, "float16", "float16"), ("auto", None, "float32")],
)
def test_a_dtype_left_to_the_model_is_settled_once(
    said: str | None, stored: str | None, dtype: str
) -> None:
    from transformers import LlamaConfig

    from autotune.probe.child.dtype import settle_dtype

    for by_keyword in (False, True):
        options = {"model_init_kwargs": {"dtype": said}} if by_keyword else {"dtype": said}
        notices: list[str] = []
        settle_dtype(options, LlamaConfig(dtype=stored), notices)
        assert dtype == user_candidate(facts_of(options=options)).get("dtype")
        assert dtype in notices[0]
    untouched: dict[str, Any] = {}
    settle_dtype(untouched, LlamaConfig(dtype="bfloat16"), notices := [])
    assert ({}, []) == (untouched, notices)


def test_positions_are_found_by_whatever_name_a_config_has(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, GPT2Config

    from autotune import demo
    from autotune.probe.child.model_facts import model_facts

    GPT2Config(n_positions=24).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(str(demo.DEMO_DIR)).save_pretrained(tmp_path)
    job = Job(trainer=Trainer.SFT, model=str(tmp_path), dataset=DatasetSource(path="x"))
    found = model_facts(job, {}, tmp_path)[0].positions
    assert Positions(most=24, field="n_positions") == found


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


def test_a_gpu_that_is_asked_for_is_measured_whatever_the_config_says_of_the_cpu() -> None:
    from autotune.probe.child.resolve import resolve_options

    options = {"use_cpu": True, "bf16": False}
    job = Job(trainer=Trainer.SFT, model="m", dataset=DatasetSource(path="x"), options=options)
    notices: list[str] = []
    assert "use_cpu" in resolve_options(job, CPU, notices, VERSIONS, {}, on_cpu=True)
    assert [] == notices
    assert "use_cpu" not in resolve_options(job, GPU, notices, VERSIONS, {}, on_cpu=False)
    assert "use_cpu is left out" in notices[0]
