from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autotune.core.errors import NothingFits
from autotune.core.job import PROBED_TRAINERS, DatasetSource, Trainer
from autotune.core.result import Result
from autotune.emit import EMITTERS, write_emitted
from tests.support.results import (
    cpu_result,
    gpu_result,
    nothing_fits_result,
    preference_result,
    with_best,
    with_job,
)

PEFT = {
    "use_peft": True,
    "lora_r": 8,
    "lora_target_modules": ["all-linear"],
    "load_in_4bit": True,
    "dtype": "bfloat16",
    "attn_implementation": "sdpa",
    "trust_remote_code": False,
}


def script_results() -> dict[str, Result]:
    long = "/data/" + "x" * 120 + "/rows.jsonl"
    evil = 'a"""b\\c\nimport os  # 日本'
    return {
        "gpu": gpu_result(),
        "cpu": cpu_result(),
        "dpo": preference_result(Trainer.DPO),
        "reward": preference_result(Trainer.REWARD),
        "kto": preference_result(Trainer.KTO),
        "peft": with_job(gpu_result(), config_text=None, options=PEFT, env={}),
        "long": with_job(gpu_result(), dataset=DatasetSource(path=long)),
        "evil": with_job(cpu_result(), model=evil, options={"run_name": evil}),
        "note": with_best(gpu_result(), note=evil),
    }


@pytest.mark.parametrize("name", list(script_results()))
def test_the_script_is_clean_to_ruff_and_formatted(name: str, tmp_path: Path) -> None:
    file = tmp_path / "best.py"
    file.write_text(EMITTERS["python"].render(script_results()[name]))
    config = Path(__file__).parents[3] / "pyproject.toml"
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", str(config), str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (0, "") == (done.returncode, done.stdout if done.returncode else ""), done.stdout


def test_the_script_sets_variables_before_it_imports_what_reads_them() -> None:
    tree = ast.parse(EMITTERS["python"].render(gpu_result()))
    lines = {type(node).__name__ + ast.unparse(node)[:12]: node.lineno for node in tree.body}
    heavy = min(n.lineno for n in tree.body if ast.unparse(n).startswith(("from trl", "from data")))
    assert all(line < heavy for key, line in lines.items() if "os.environ" in key)


def test_a_hub_token_stays_in_the_users_file_and_out_of_script_and_json() -> None:
    secret = "hf_secretsecret"
    result = with_job(
        gpu_result(), config_text=f"hub_token: {secret}\n", options={"hub_token": secret}
    )
    texts = {name: emitter.render(result) for name, emitter in EMITTERS.items()}
    assert ["trl-yaml"] == [name for name, text in texts.items() if secret in text]
    assert 'os.environ.get("HF_TOKEN")' in texts["python"]


def test_json_holds_knobs_options_peaks_and_estimate() -> None:
    document = json.loads(EMITTERS["json"].render(gpu_result()))
    best = gpu_result().best_trial
    assert best is not None
    assert best.candidate.knobs == document["knobs"]
    assert 7420.0 == document["estimate"]["useful_tokens_per_s"]
    assert document["peaks"]["process_bytes"] > 0


def test_an_env_file_without_variables_says_so_in_one_line() -> None:
    text = EMITTERS["env"].render(cpu_result())
    assert 1 == text.count("\n")
    assert text.startswith("# Nothing is needed")


@pytest.mark.parametrize("trainer", PROBED_TRAINERS)
def test_variables_are_merged_with_the_users_and_are_no_option_anywhere(trainer: Trainer) -> None:
    # BC54: one allocator variable, the user's other settings kept, and nowhere a config field.
    result = with_job(gpu_result(), trainer=trainer)
    merged = "max_split_size_mb:128,expandable_segments:True"
    text = EMITTERS["env"].render(result)
    done = subprocess.run(
        ["sh", "-c", f'set -a\n{text}\nprintf "%s" "$PYTORCH_CUDA_ALLOC_CONF"; env'],
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    assert done.stdout.startswith(merged)
    assert "PYTORCH_ALLOC_CONF=" not in done.stdout
    document = yaml.safe_load(EMITTERS["trl-yaml"].render(result))
    assert merged == document.pop("env")["PYTORCH_CUDA_ALLOC_CONF"]
    options = json.loads(EMITTERS["json"].render(result))["options"]
    launcher = yaml.safe_load(EMITTERS["accelerate"].render(result))
    names = [name.lower() for name in (*document, *options, *launcher)]
    assert [] == [name for name in names if "alloc" in name]


def test_an_env_file_quotes_what_a_shell_would_split() -> None:
    result = with_job(cpu_result(), env={"A": "one two", "B": "it's", "C": "a:b,c"})
    text = EMITTERS["env"].render(result)
    done = subprocess.run(
        ["sh", "-c", f'{text}\nprintf "%s|%s|%s" "$A" "$B" "$C"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "one two|it's|a:b,c" == done.stdout


def test_the_files_to_train_with_are_written_whole(tmp_path: Path) -> None:
    files = write_emitted(gpu_result(), tmp_path)
    assert ["best.env", "best.py", "best.yaml"] == sorted(p.name for p in tmp_path.iterdir())
    assert EMITTERS["trl-yaml"].render(gpu_result()) == files[0].read_text()


def test_nothing_is_written_when_nothing_fits(tmp_path: Path) -> None:
    with pytest.raises(NothingFits):
        write_emitted(nothing_fits_result(), tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_importing_the_emitters_loads_no_heavy_library() -> None:
    code = (
        "import sys, autotune.emit, autotune.report.csv_table;"
        "print([m for m in ('torch','transformers','trl','pandas','plotly','jinja2')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout
