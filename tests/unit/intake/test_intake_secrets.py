"""Secrets of the user's config and command line are in nothing that is written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.core.errors import BadInput
from autotune.intake.job import build_job
from autotune.intake.request import Request, resumed_request, save_request

HF = "hf_" + "a1B2" * 6
YAML = f"""\
# mine; an old one was {HF}
learning_rate: 1.0e-4
hub_token: {HF}
hub_model_id: me/mine
model_init_kwargs:
  token: planted-secret
  use_cache: false
env:
  WANDB_API_KEY: planted-secret
  MLFLOW_TRACKING_URI: https://me:planted-secret@host/ml
  WANDB_PROJECT: x
eos_token: "</s>"
"""


def built(text: str, tmp_path: Path, **request: Any) -> Any:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return build_job(Request(config=str(file), **request))


def test_no_secret_of_a_config_is_in_the_job_and_its_other_lines_stay(tmp_path: Path) -> None:
    job, origin = built(YAML, tmp_path)
    document = job.model_dump_json()
    assert "planted-secret" not in document
    assert HF not in document
    assert {"WANDB_PROJECT": "x"} == job.env
    assert {"use_cache": False} == job.options["model_init_kwargs"]
    assert job.options["eos_token"] == "</s>"
    assert job.config_text is not None
    own = yaml.safe_load(job.config_text)
    assert {"hub_model_id": "me/mine", "eos_token": "</s>"}.items() <= own.items()
    assert {"WANDB_PROJECT": "x"} == own["env"]
    assert "# hub_token: kept out by autotune" in job.config_text
    (said,) = (n for n in origin.notices if "kept out" in n)
    for name in ("hub_token", "model_init_kwargs.token", "env WANDB_API_KEY", "HF_TOKEN"):
        assert name in said


def test_the_measuring_processes_still_get_the_variables(tmp_path: Path) -> None:
    _, origin = built(YAML, tmp_path)
    assert origin.secret_env["WANDB_API_KEY"] == "planted-secret"
    assert {"WANDB_API_KEY", "MLFLOW_TRACKING_URI", "HF_TOKEN"} == set(origin.secret_env)
    assert "planted-secret" == origin.secret_env["HF_TOKEN"], "the model's own token"


def test_a_token_that_is_typed_for_the_model_reaches_the_measuring_processes(
    tmp_path: Path,
) -> None:
    job, origin = build_job(Request(set_options={"model_init_kwargs": {"token": "planted"}}))
    assert {"HF_TOKEN": "planted"} == origin.secret_env
    assert "planted" not in job.model_dump_json()


@pytest.mark.parametrize(
    "address",
    [
        "https://me:planted@host/rows.jsonl",
        "https://planted@host/rows.jsonl",
        "s3://me:planted@bucket/rows.jsonl",
        "https://host/rows.jsonl?access_token=planted&x=1",
        "https://host/rows.jsonl?X-Amz-Signature=planted",
    ],
)
def test_an_address_of_rows_is_refused_without_its_secret(address: str, tmp_path: Path) -> None:
    blocks = f"datasets:\n  - path: json\n    data_files:\n      - {address}\n"
    (tmp_path / "mine.yaml").write_text(blocks, encoding="utf-8")
    for request in (Request(dataset=address), Request(config=str(tmp_path / "mine.yaml"))):
        with pytest.raises(BadInput, match="is an address") as caught:
            build_job(request)
        assert "planted" not in str(caught.value)


def test_a_secret_in_a_list_goes_with_the_whole_option(tmp_path: Path) -> None:
    text = "report_to:\n  - https://me:planted@host/ml\n  - wandb\nseed: 3\n"
    job, _ = built(text, tmp_path)
    assert {"seed": 3} == job.options == yaml.safe_load(str(job.config_text))
    assert "planted" not in job.model_dump_json()


def test_a_block_of_nothing_but_secrets_goes_with_them(tmp_path: Path) -> None:
    job, _ = built("env:\n  HF_TOKEN: >\n    planted\n    secret\nseed: 3\n", tmp_path)
    assert {"seed": 3} == yaml.safe_load(str(job.config_text))
    assert "planted" not in job.model_dump_json()


def test_a_secret_inside_a_line_leaves_the_text_out(tmp_path: Path) -> None:
    job, _ = built("env: {HF_TOKEN: planted-secret, OMP_NUM_THREADS: 2}\nseed: 3\n", tmp_path)
    assert job.config_text is None
    assert {"OMP_NUM_THREADS": "2"} == job.env
    assert {"seed": 3} == job.options


def test_a_secret_lies_as_deep_as_it_likes_and_what_is_beside_it_stays(tmp_path: Path) -> None:
    text = (
        "model_init_kwargs:\n  a:\n    token: planted\n    b: 1\n  c:\n    token: planted\n"
        "seed: 3\n"
    )
    job, _ = built(text, tmp_path)
    assert "planted" not in job.model_dump_json()
    left = {"model_init_kwargs": {"a": {"b": 1}}, "seed": 3}
    assert left == job.options
    assert left == yaml.safe_load(str(job.config_text))


def test_a_name_of_words_is_no_secret(tmp_path: Path) -> None:
    text = "model_name_or_path: hf-internal-testing/tiny-random-LlamaForCausalLM\n"
    text += "dataset_name: demo\nseed: 3\n"
    job, origin = built(text, tmp_path)
    assert "hf-internal-testing/tiny-random-LlamaForCausalLM" == job.model
    assert text == job.config_text
    assert not any("kept out" in n for n in origin.notices)


def test_a_config_without_secrets_is_kept_letter_by_letter(tmp_path: Path) -> None:
    text = "max_length: 64   # short\npad_token: <pad>\n"
    job, origin = built(text, tmp_path)
    assert text == job.config_text
    assert not any("kept out" in n for n in origin.notices)


@pytest.mark.parametrize("name", ["hub_token", "push_to_hub_token"])
def test_a_secret_that_is_typed_is_in_no_document(name: str, tmp_path: Path) -> None:
    request = Request(set_options={name: "planted-secret", "seed": 3}, out=str(tmp_path))
    job, origin = build_job(request)
    save_request(request, tmp_path)
    assert "planted" not in (tmp_path / "request.json").read_text(encoding="utf-8")
    assert "planted" not in job.model_dump_json()
    assert any(name in notice for notice in origin.notices)
    again = resumed_request(Request(set_options=request.set_options, resume=True), tmp_path)
    assert {"seed": 3} == again.set_options


def test_the_password_of_a_storage_is_asked_for_again(tmp_path: Path) -> None:
    storage = "mysql+pymysql://me:planted@host/name"
    save_request(Request(storage=storage, out=str(tmp_path)), tmp_path)
    assert "planted" not in (tmp_path / "request.json").read_text(encoding="utf-8")
    with pytest.raises(BadInput, match="Give --storage again"):
        resumed_request(Request(resume=True), tmp_path)
    assert storage == resumed_request(Request(storage=storage, resume=True), tmp_path).storage
    with pytest.raises(BadInput, match="was started with"):
        resumed_request(Request(storage="sqlite:///x.db", resume=True), tmp_path)


def test_a_folder_that_kept_its_password_goes_on_and_never_shows_it(tmp_path: Path) -> None:
    storage = "mysql+pymysql://me:planted@host/name"
    old = {"storage": storage, "set_options": {"hub_token": "planted", "seed": 3}}
    (tmp_path / "request.json").write_text(json.dumps(old), encoding="utf-8")
    for given in (None, storage):
        again = resumed_request(Request(storage=given, resume=True), tmp_path)
        assert (storage, {"seed": 3}) == (again.storage, again.set_options)
    with pytest.raises(BadInput, match="was started with") as caught:
        resumed_request(Request(storage="sqlite:///x.db", resume=True), tmp_path)
    assert "planted" not in caught.value.message


@pytest.mark.parametrize("name", ["PASSPHRASE", "PIN", "DB_URL", "MY_KEY", "foo", "AUTH", "S3_SAS"])
def test_any_variable_of_a_config_may_be_a_secret_and_is_written_nowhere(
    name: str, tmp_path: Path
) -> None:
    text = f"env:\n  {name}: open sesame\n  PYTORCH_ALLOC_CONF: expandable_segments:True\n"
    job, origin = built(text, tmp_path)
    assert "sesame" not in job.model_dump_json()
    assert {"PYTORCH_ALLOC_CONF": "expandable_segments:True"} == job.env
    assert "open sesame" == origin.secret_env[name], "a probe may need it"
    assert f"env {name}" in " ".join(origin.notices)


def test_a_variable_known_to_be_harmless_may_still_hold_a_secret(tmp_path: Path) -> None:
    job, _ = built("env:\n  HF_HUB_TOKEN: sesame\n  WANDB_DIR: https://a:b@host\n", tmp_path)
    assert not job.env
