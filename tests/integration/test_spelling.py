"""Options by old names: understood, emitted by names that warn of nothing, or explained."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.core.errors import BadInput
from autotune.core.job import DatasetSource, Trainer
from autotune.core.result import Result
from autotune.emit import EMITTERS, build_config, fields
from autotune.knobs.former import FORMER
from autotune.training.arguments import option_owners, parse_options, require_options
from tests.support.deprecations import deprecations
from tests.support.models import tiny_model
from tests.support.results import cpu_result, preference_result, with_best, with_job

pytestmark = pytest.mark.integration

CPU_OPTIONS = {"use_cpu": True, "bf16": False, "fp16": False}
OLD = """\
gradient_checkpointing: true  # as it was called
gradient_checkpointing_kwargs: {use_reentrant: false}
model_init_kwargs: {torch_dtype: float32}
"""
OLD_OF: dict[Trainer, str] = {
    Trainer.SFT: "loss_type: chunked_nll\npacking: true\npacking_strategy: bfd-requeue\n"
}
TUNED: dict[str, dict[str, Any]] = {
    "all as it was": {},
    "no checkpointing": {"gradient_checkpointing": False},
    "selective": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"selective": True},
    },
}


def rows_of(trainer: Trainer) -> list[dict[str, Any]]:
    if trainer is Trainer.SFT:
        return [{"text": "one two three"} for _ in range(8)]
    if trainer is Trainer.KTO:
        return [{"prompt": "a ", "completion": "b c", "label": n % 2 == 0} for n in range(8)]
    return [{"prompt": "a ", "chosen": "b c", "rejected": "d"} for _ in range(8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model and rows for every trainer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    found = tmp_path_factory.mktemp("spelling")
    model = tiny_model(found / "model")
    config = AutoConfig.from_pretrained(model)
    AutoModelForCausalLM.from_config(config).save_pretrained(model)
    for trainer in fields.TRAINERS:
        rows = "".join(json.dumps(row) + "\n" for row in rows_of(trainer))
        (found / f"{trainer.value}.jsonl").write_text(rows, encoding="utf-8")
    return found


def result_of(trainer: Trainer, folder: Path, text: str, tuned: dict[str, Any]) -> Result:
    """Return a result of a job whose config is this text and whose winner has these options."""
    base = cpu_result() if trainer is Trainer.SFT else preference_result(trainer)
    text += f"output_dir: {folder / 'out'}\nsave_strategy: 'no'\nreport_to: none\n"
    result = with_job(
        base,
        model=str(folder / "model"),
        dataset=DatasetSource(path=str(folder / f"{trainer.value}.jsonl")),
        config_text=text,
        options=yaml.safe_load(text),
        env={},
    )
    result = with_best(result, options={"max_length": 64, **tuned}, env={})
    profile = result.profile.model_copy(update={"converted_file": None})
    return result.model_copy(update={"profile": profile})


def options_in(heard: list[str], trainer: Trainer) -> set[str]:
    """Return the options that deprecations name; TRL calls deprecated methods by itself."""
    named = {name for said in heard for name in re.findall(r"`([a-z_]+)", said)}
    return named & {*option_owners(trainer), "torch_dtype"}


def cases() -> list[tuple[Trainer, str, str]]:
    found = [(t, text, "all as it was") for t in fields.TRAINERS for text in ("", "old")]
    return [*found, *((Trainer.SFT, "old", how) for how in TUNED if how != "all as it was")]


@pytest.mark.parametrize(("trainer", "spelt", "how"), cases())
def test_nothing_that_is_emitted_warns_of_a_deprecated_option(
    trainer: Trainer,
    spelt: str,
    how: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = OLD + OLD_OF.get(trainer, "") if spelt else ""
    result = result_of(trainer, folder, text, TUNED[how])
    written = EMITTERS["trl-yaml"].render(result)
    file, out = tmp_path / "best.py", tmp_path / "trained"
    file.write_text(EMITTERS["python"].render(result), encoding="utf-8")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    options = ["--max_steps", "1", "--use_cpu", "--output_dir", str(out)]
    monkeypatch.setattr(sys, "argv", [str(file), *options])
    with deprecations() as heard:
        known = option_owners(trainer)
        values = {k: v for k, v in yaml.safe_load(written).items() if k in known}
        parse_options(trainer, {**values, **CPU_OPTIONS})
        build_config(result, **CPU_OPTIONS)
        runpy.run_path(str(file), run_name="__main__")
    assert set() == options_in(heard, trainer)
    assert (out / "model.safetensors").is_file()


def test_a_deprecation_would_be_heard() -> None:
    # What transformers 5.23 and TRL 1.15 have deprecated, as the user had it.
    old = {**CPU_OPTIONS, "gradient_checkpointing": True, "loss_type": "chunked_nll"}
    with deprecations() as heard:
        parse_options(Trainer.SFT, old)
    assert {"gradient_checkpointing", "loss_type"} <= options_in(heard, Trainer.SFT)


@pytest.mark.parametrize("option", FORMER)
def test_an_option_that_is_gone_is_bad_input_with_what_takes_its_place(option: str) -> None:
    for trainer in fields.TRAINERS:
        with pytest.raises(BadInput, match=f"TRL no longer has the option '{option}'; .*its place"):
            parse_options(trainer, {option: 1})


def test_everything_unknown_is_named_in_one_answer_with_what_takes_its_place() -> None:
    # https://github.com/huggingface/open-r1/blob/main/recipes: names of 2024 and 2025
    recipe = {
        "torch_dtype": "bfloat16",
        "overwrite_output_dir": True,
        "use_liger": True,
        "warmup_ratio": 0.1,
        "evaluation_strategy": "no",
        "max_prompt_length": 512,
        "dataset_mixture": {},
        "packing_strategy": "ffd",
        "callbacks": [],
        "learning_rate": 1e-5,
    }
    entry = {"path": "json", "data_files": "rows.jsonl", "weight": 1.0, "config": "all"}
    with pytest.raises(BadInput) as caught:
        require_options(Trainer.SFT, recipe, [entry])
    lines = caught.value.message.splitlines()
    assert "11 keys or values" in lines[0]
    assert len(lines) == 12
    assert "  - use_liger: use_liger_kernel takes its place" in lines
    assert "  - overwrite_output_dir: nothing takes its place" in lines
    assert "  - packing_strategy: ffd: now called bfd" in lines
    assert "  - datasets[0].weight: no key of an entry; fraction takes its place" in lines
    assert "  - callbacks: no option of TRL" in lines


def test_a_single_unknown_key_of_an_entry_is_one_sentence() -> None:
    entry = {"path": "json", "data_files": "rows.jsonl", "fractoin": 1.0}
    with pytest.raises(BadInput, match="did you mean 'fraction'"):
        require_options(Trainer.SFT, {}, [entry])


def test_what_takes_the_place_of_an_option_is_one() -> None:
    named = {word for text in FORMER.values() for word in re.findall(r"^[a-z_]+(?=\W|$)", text)}
    known = {name for trainer in fields.TRAINERS for name in option_owners(trainer)}
    assert {"the"} == named - known  # "the variable ..."
