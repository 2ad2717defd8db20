from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.core.errors import NotBuiltYet, NothingFits
from autotune.core.job import DatasetSource, Trainer
from autotune.core.result import Result
from autotune.emit import EMITTERS
from autotune.emit.header import CPU_MARK, LAST_LINE
from tests.golden.check import assert_golden
from tests.support.results import (
    OWN_OPTIONS,
    OWN_YAML,
    cpu_result,
    gpu_result,
    nothing_fits_result,
    preference_result,
    profile,
    with_best,
    with_job,
    with_versions,
)


def rendered(result: Result) -> str:
    return EMITTERS["trl-yaml"].render(result)


def loaded(result: Result) -> dict[str, Any]:
    return dict(yaml.safe_load(rendered(result)))


def body(result: Result) -> str:
    return rendered(result).partition(f"# {LAST_LINE}\n\n")[2]


@pytest.mark.parametrize("name", list(EMITTERS))
def test_what_is_emitted_for_a_gpu_equals_its_golden_file(name: str) -> None:
    assert_golden(f"emit/gpu/{EMITTERS[name].file_name}", EMITTERS[name].render(gpu_result()))


@pytest.mark.parametrize("name", list(EMITTERS))
def test_what_is_emitted_for_dpo_equals_its_golden_file(name: str) -> None:
    result = preference_result(Trainer.DPO)
    assert_golden(f"emit/dpo/{EMITTERS[name].file_name}", EMITTERS[name].render(result))


@pytest.mark.parametrize("name", list(EMITTERS))
def test_what_is_emitted_for_a_cpu_equals_its_golden_file(name: str) -> None:
    assert_golden(f"emit/cpu/{EMITTERS[name].file_name}", EMITTERS[name].render(cpu_result()))


@pytest.mark.parametrize("name", list(EMITTERS))
def test_nothing_is_emitted_when_nothing_fits(name: str) -> None:
    with pytest.raises(NothingFits, match=r"8\.00 GiB"):
        EMITTERS[name].render(nothing_fits_result())


@pytest.mark.parametrize("name", list(EMITTERS))
def test_a_trainer_that_is_not_built_yet_is_refused_by_name(name: str) -> None:
    with pytest.raises(NotBuiltYet, match="grpo"):
        EMITTERS[name].render(with_job(gpu_result(), trainer=Trainer.GRPO))


def test_every_line_the_winner_does_not_change_stays_as_the_user_wrote_it() -> None:
    mine = [line for line in body(gpu_result()).splitlines() if line]
    theirs = [line for line in OWN_YAML.splitlines() if line]
    changed = [line for line in theirs if line not in mine]
    assert [
        "per_device_train_batch_size: 8     # what fitted on the old cards",
        "gradient_accumulation_steps: 4",
        "max_length: 1024",
        "gradient_checkpointing: yes",
        "warmup_steps: 20",
        "eval_strategy: no",
        "  PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb:128",
    ] == changed
    assert [w for w in theirs if w in mine] == [w for w in mine if w in theirs]


def test_what_probes_replaced_comes_back_as_the_user_had_it() -> None:
    result = with_best(
        gpu_result(),
        options={"output_dir": "/tmp/probe", "report_to": "none", "push_to_hub": False},
    )
    restored = {k: loaded(result)[k] for k in gpu_result().overrides}
    assert gpu_result().overrides == restored


def test_facts_of_the_measuring_machine_stay_out() -> None:
    result = with_job(cpu_result(), options={"use_cpu": True, "no_cuda": True})
    result = with_best(result, options={"use_cpu": True, "packing": True})
    assert not {"use_cpu", "no_cuda"} & set(loaded(result))


def test_a_fact_of_the_machine_stays_when_the_users_file_states_it() -> None:
    result = with_job(cpu_result(), config_text="use_cpu: true\n", options={"use_cpu": True})
    assert loaded(result)["use_cpu"] is True


def test_a_config_measured_on_a_gpu_does_not_train_on_the_cpu() -> None:
    result = with_job(gpu_result(), config_text="use_cpu: true\n", options={"use_cpu": True})
    assert loaded(result)["use_cpu"] is False
    assert "cuda:0 is what was measured" in rendered(result)


def test_a_finder_of_batch_sizes_is_switched_off_with_the_reason() -> None:
    own = {"auto_find_batch_size": True}
    result = with_job(gpu_result(), config_text="auto_find_batch_size: true  # mine\n", options=own)
    assert loaded(result)["auto_find_batch_size"] is False
    assert "auto_find_batch_size: true -> false" in rendered(result)
    assert "changes what an update learns" in rendered(result)


@pytest.mark.parametrize(
    ("own", "emitted"),
    [
        ({"mixed_precision": "fp16", "bf16": True}, {"mixed_precision": "bf16"}),
        ({"mixed_precision": "bf16", "bf16": False}, {"mixed_precision": "no"}),
        ({"mixed_precision": "bf16", "bf16": True}, {"mixed_precision": "bf16"}),
        ({"dynamo_backend": "inductor", "bf16": True}, {"dynamo_backend": "no"}),
        ({"dynamo_backend": "inductor", "torch_compile": True}, {"dynamo_backend": "inductor"}),
    ],
)
def test_a_launcher_does_not_undo_what_was_measured(
    own: dict[str, Any], emitted: dict[str, Any]
) -> None:
    found = loaded(with_job(gpu_result(), config_text=yaml.safe_dump(own), options=own))
    assert emitted == {name: found[name] for name in emitted}


def test_a_checkpoint_of_other_steps_is_remarked() -> None:
    remark = "counts steps of the config it was saved with"
    result = gpu_result()  # resumes from a checkpoint, and the winner packs
    assert result.best_trial is not None
    assert remark in rendered(result)
    packing = ("packing", "packing_strategy")
    plain = {k: v for k, v in result.best_trial.options.items() if k not in packing}
    assert remark not in rendered(with_best(result, options=plain))


def measured_with(result: Result, **effective: Any) -> Result:
    best = result.best_trial
    assert best is not None and best.report.measurement is not None
    known = {**best.report.measurement.effective, **effective}
    measurement = best.report.measurement.model_copy(update={"effective": known})
    report = best.report.model_copy(update={"measurement": measurement})
    return with_best(result, report=report)


def test_what_was_measured_under_a_default_is_written_out() -> None:
    used = {
        "attn_implementation": "sdpa",
        "optim": "adamw_torch_fused",
        "dtype": "float32+bfloat16",
    }
    own = {"eval_strategy": "steps", "eval_steps": 10}
    text = "eval_strategy: steps\neval_steps: 10\n"
    result = with_job(gpu_result(), config_text=text, options=own)
    found = loaded(measured_with(result, **used, per_device_eval_batch_size=8))
    assert "sdpa" == found["attn_implementation"]
    assert "float32" == found["dtype"], "the base's; adapters have their own"
    assert found["per_device_eval_batch_size"] == 8
    assert "per_device_eval_batch_size" not in loaded(
        measured_with(gpu_result(), per_device_eval_batch_size=8)
    ), "nothing is evaluated"


def test_what_the_user_has_in_their_init_keywords_is_not_written_twice() -> None:
    own = {"model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": "eager"}}
    text = "model_init_kwargs: {dtype: bfloat16, attn_implementation: eager}\n"
    result = with_job(gpu_result(), config_text=text, options=own)
    found = loaded(measured_with(result, dtype="bfloat16", attn_implementation="eager"))
    assert not {"dtype", "attn_implementation"} & found.keys()


def test_paging_is_given_back_where_a_cpu_had_nothing_to_page_out_of() -> None:
    own = {"optim": "paged_adamw_8bit"}
    result = with_job(cpu_result(), config_text="optim: paged_adamw_8bit\n", options=own)
    best = result.best_trial
    assert best is not None
    result = with_best(result, options={**best.options, "optim": "adamw_8bit"})
    assert "paged_adamw_8bit" == loaded(result)["optim"]


def test_the_file_says_what_it_needs_of_the_runs_folder() -> None:
    assert "needs /work/runs/tiny/dataset/train.parquet" in rendered(cpu_result())
    own_rows = with_job(gpu_result(), dataset=DatasetSource(path="acme/rows"))
    assert "# needs " not in rendered(own_rows)


def test_a_folder_without_weights_is_said_in_the_file() -> None:
    result = gpu_result().model_copy(update={"lacks_weights": True})
    assert "holds a config and no weights" in rendered(result)
    assert "--model_name_or_path" in rendered(result)
    assert "no weights" not in rendered(gpu_result())


def test_a_result_of_a_cpu_says_that_it_is_no_advice_for_a_gpu() -> None:
    assert CPU_MARK in rendered(cpu_result())
    assert CPU_MARK not in rendered(gpu_result())


def test_variables_are_never_options_and_options_never_variables() -> None:
    result = gpu_result()
    assert {"WANDB_PROJECT", "PYTORCH_CUDA_ALLOC_CONF"} == set(loaded(result)["env"])
    assert not any(name.isupper() for name in loaded(result))


def test_the_allocators_options_are_merged_with_the_users() -> None:
    assert (
        "max_split_size_mb:128,expandable_segments:True"
        == (loaded(gpu_result())["env"]["PYTORCH_CUDA_ALLOC_CONF"])
    )


def test_an_env_block_is_written_when_the_user_had_none() -> None:
    result = with_job(gpu_result(), config_text="learning_rate: 1.0e-4\n", env={})
    assert {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} == loaded(result)["env"]


def test_an_env_block_in_flow_style_keeps_its_variables() -> None:
    text = "env: {A: 1, B: x}  # mine\nlearning_rate: 1.0e-4\n"
    expected = {"A": 1, "B": "x", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert expected == loaded(with_job(gpu_result(), config_text=text, env={}))["env"]


def test_length_and_precision_are_written_out_where_they_were_implicit() -> None:
    result = with_best(cpu_result(), options={"packing": False})
    assert (1024, True) == (loaded(result)["max_length"], loaded(result)["bf16"])


def test_bf16_is_off_when_the_user_chose_fp16() -> None:
    result = with_job(gpu_result(), config_text="fp16: true\n", options={"fp16": True})
    assert loaded(result)["bf16"] is False


def test_no_limit_of_length_is_written_as_null() -> None:
    result = with_best(gpu_result(), options={"max_length": None, "padding_free": True})
    assert "\nmax_length: null\n" in rendered(result)
    assert loaded(result)["max_length"] is None


def test_an_option_the_user_gave_on_the_command_line_is_in_the_file() -> None:
    result = with_job(gpu_result(), options={**OWN_OPTIONS, "learning_rate": 1e-4, "seed": 7})
    assert (1e-4, 7) == (loaded(result)["learning_rate"], loaded(result)["seed"])
    assert "learning_rate: 2.0e-05 -> 0.0001" in rendered(result).replace("2e-5", "2.0e-05")


def test_every_changed_key_is_listed_with_both_values() -> None:
    text = rendered(gpu_result())
    head = text.partition(LAST_LINE)[0]
    own, new = yaml.safe_load(OWN_YAML), yaml.safe_load(text)
    changed = {k for k in new if k not in own or own[k] != new[k]} - {"env"}
    assert [] == [k for k in sorted(changed) if f" {k}: " not in head]
    renamed = "gradient_checkpointing, now activation_checkpointing: true -> true"
    assert f"#   {renamed}   [as the installed versions want it written]" in head


def test_a_file_that_was_tuned_before_gets_one_header() -> None:
    first = rendered(gpu_result())
    again = with_job(gpu_result(), config_text=first)
    assert 1 == rendered(again).count(LAST_LINE)
    assert body(gpu_result()) == body(again)


@pytest.mark.parametrize(
    "text",
    [
        '{"learning_rate": 0.0001, "max_length": 512, "output_dir": "o"}',
        "base: &b {x: 1}\nlearning_rate: 0.0001\nmax_length: &m 512\noutput_dir: o\nseed: *m\n",
        "  learning_rate: 0.0001\n  max_length: 512\n  output_dir: o",
        "learning_rate: 0.0001\nmax_length: 64\nmax_length: 512\noutput_dir: o\n...\n",
        "---\nlearning_rate: 0.0001\nmax_length: >-\n  512\n\n# c\noutput_dir: o\n",
        "\ufefflearning_rate: 0.0001\nmax_length:\n   512\noutput_dir: o\n",
        "? learning_rate\n: 0.0001\n? max_length\n: 512\noutput_dir: o\n",
    ],
    ids=["json", "anchor", "indented", "repeated", "folded", "marked", "explicit"],
)
def test_an_unusual_file_still_means_what_it_should(text: str) -> None:
    options = {"learning_rate": 0.0001, "max_length": 512, "output_dir": "o"}
    result = with_job(gpu_result(), config_text=text, options=options, env={})
    values = loaded(result)
    assert (0.0001, 2048, "o", True) == (
        values["learning_rate"],
        values["max_length"],
        values["output_dir"],
        values["packing"],
    )


def test_a_hostile_name_stays_a_value() -> None:
    evil = "acme/x\n---\npush_to_hub: true # <script>"
    result = with_job(gpu_result(), model=evil, config_text=None, options={})
    assert evil == loaded(result)["model_name_or_path"]
    assert "push_to_hub" not in loaded(result)


def test_a_local_file_becomes_a_block_and_its_name_goes(tmp_path: Path) -> None:
    rows = str(tmp_path / "rows [v2].jsonl")
    result = with_job(gpu_result(), dataset=DatasetSource(path=rows))
    values = loaded(result)
    assert {"dataset_name", "dataset_train_split"}.isdisjoint(values)
    block = {"path": "json", "data_files": rows.replace("[", "[[]"), "split": "train"}
    assert [block] == values["datasets"]


def test_the_users_own_block_stays_as_it_is() -> None:
    text = "datasets:\n  # chats\n  - path: json\n    data_files: a.json  # relative\n"
    blocks = ({"path": "json", "data_files": "a.json"},)
    result = with_job(
        gpu_result(), config_text=text, dataset=DatasetSource(path="a.json", blocks=blocks)
    )
    assert text in body(result)


def test_converted_rows_are_read_from_the_runs_folder() -> None:
    result = gpu_result()
    changed = profile(converted_file="/work/runs/support/dataset/train.parquet", conversion="x")
    result = result.model_copy(update={"profile": changed})
    block = {
        "path": "parquet",
        "data_files": "/work/runs/support/dataset/train.parquet",
        "split": "train",
    }
    assert [block] == loaded(result)["datasets"]
    assert "dataset_name" not in loaded(result)


def test_rows_cut_beforehand_are_read_from_the_runs_folder_and_bring_their_labels() -> None:
    result = with_best(
        with_job(gpu_result(), config_text=OWN_YAML + "assistant_only_loss: true\n"),
        pretruncate_tokens=2048,
    )
    values = loaded(result)
    assert "/work/runs/support/dataset/train.parquet" == values["datasets"][0]["data_files"]
    assert values["assistant_only_loss"] is False


def test_written_rows_with_evaluation_are_named_as_a_folder_because_a_block_has_no_test() -> None:
    text = OWN_YAML.replace("eval_strategy: no", "eval_strategy: steps")
    options = {**OWN_OPTIONS, "eval_strategy": "steps"}
    result = with_best(
        with_job(gpu_result(), config_text=text, options=options), pretruncate_tokens=2048
    )
    values = loaded(result)
    assert ("/work/runs/support/dataset", None) == (
        values["dataset_name"],
        values.get("dataset_train_split"),
    )


BEFORE = {"trl": "1.14.2", "transformers": "5.22.2"}


@pytest.mark.parametrize("wanted", ["activation", "gradient"])
@pytest.mark.parametrize(
    ("user", "tuner"),
    [("activation", "gradient"), ("gradient", "activation"), ("activation", "activation")],
)
def test_an_option_with_two_names_is_written_by_the_one_the_installed_versions_want(
    user: str, tuner: str, wanted: str
) -> None:
    asked = {f"{user}_checkpointing": True}
    tuned = {f"{tuner}_checkpointing": False, f"{tuner}_checkpointing_kwargs": {"a": 1}}
    text = f"learning_rate: 0.1\n{user}_checkpointing: true  # as ever\nseed: 3\n"
    result = with_best(with_job(gpu_result(), config_text=text, options=asked), options=tuned)
    if wanted == "gradient":
        result = with_versions(result, BEFORE)
    assert {f"{wanted}_checkpointing": False, f"{wanted}_checkpointing_kwargs": {"a": 1}} == {
        k: v for k, v in loaded(result).items() if "checkpointing" in k
    }
    assert f"{wanted}_checkpointing: false  # as ever\nseed: 3\n" in body(result)


def test_a_key_under_both_its_names_keeps_the_newer() -> None:
    text = "gradient_checkpointing: true\nactivation_checkpointing: false\n"
    asked = {"gradient_checkpointing": True, "activation_checkpointing": False}
    result = with_best(with_job(gpu_result(), config_text=text, options=asked), options={})
    found = {k: v for k, v in loaded(result).items() if "checkpointing" in k}
    assert {"activation_checkpointing": False} == found
    assert "activation_checkpointing is its newer name" in rendered(result)


def test_what_the_command_line_gives_wins_whatever_the_names() -> None:
    text = "activation_checkpointing: true\n"
    asked = {"gradient_checkpointing": False}
    result = with_best(with_job(gpu_result(), config_text=text, options=asked), options={})
    assert loaded(result)["activation_checkpointing"] is False


OLD_VALUES = """\
loss_type: chunked_nll
packing_strategy: bfd-requeue  # keeps everything
model_init_kwargs: {torch_dtype: bfloat16, revision: main}
"""


def test_values_by_an_older_name_are_written_by_the_newer_and_listed() -> None:
    asked = yaml.safe_load(OLD_VALUES)
    result = with_best(
        with_job(gpu_result(), config_text=OLD_VALUES, options=asked), options={"max_length": 512}
    )
    written = loaded(result)
    assert "nll" == written["loss_type"]
    assert "packing_strategy: bfd_split  # keeps everything" in body(result)
    # beside the dtype TRL gives the loader the older name does nothing
    assert {"revision": "main"} == written["model_init_kwargs"]
    said = (
        "packing_strategy: bfd-requeue -> bfd_split   [as the installed versions want it written]"
    )
    assert said in rendered(result)
    older = with_versions(result, BEFORE)
    assert "chunked_nll" == loaded(older)["loss_type"]
