"""Every block of the README works: commands and scripts run, YAML loads.

A block may be run smaller than it is printed; a comment in front of it, invisible to readers of the
page, says how: ``run instead``, ``add to "COMMAND"``, ``replace "A" by "B"``. Blocks run in order
in one folder, as a reader would.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from autotune.spaces.load import read_space
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"((?:^<!-- readme-test: .*-->\n)*)^```(\w*)\n((?:.*\n)*?)^```$", re.MULTILINE)
_ADD = re.compile(r'add to "([^"]+)": (.+)')
_REPLACE = re.compile(r'replace "([^"]+)" by "([^"]+)"')
_INSTEAD = re.compile(r"run instead: (.+)")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Args:
        language: as written after the fence.
        text: what is run.
        at_root: whether it is a command of the checkout.
    """

    language: str
    text: str
    at_root: bool = False


def blocks() -> list[Block]:
    return [
        block(marks, language, text)
        for marks, language, text in _BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    ]


def block(marks: str, language: str, text: str) -> Block:
    at_root = False
    for mark in re.findall(r"<!-- readme-test: (.*?) -->", marks):
        if found := _ADD.fullmatch(mark):
            command, more = found.groups()
            assert command in text, f"{command!r} is not in the block"
            text = text.replace(command, f"{command} {more}")
        elif found := _REPLACE.fullmatch(mark):
            old, new = found.groups()
            assert old in text, f"{old!r} is not in the block"
            text = text.replace(old, new)
        elif found := _INSTEAD.fullmatch(mark):
            text, at_root = found.group(1), True
        else:
            raise AssertionError(f"a mark nobody understands: {mark}")
    return Block(language, text, at_root)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("readme")
    tiny_model(made / "my-model")
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(made / "my-model")
    AutoModelForCausalLM.from_config(config).save_pretrained(made / "my-model")
    rows = [json.dumps({"text": "word " * n}) for n in range(4, 68)]
    (made / "my-rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return made


@pytest.mark.parametrize("number", range(len(blocks())))
def test_a_block_of_the_readme_works(number: int, folder: Path) -> None:
    found = blocks()[number]
    cwd = ROOT if found.at_root else folder
    if found.language == "bash":
        run(["bash", "-euo", "pipefail", "-c", found.text], cwd)
    elif found.language == "python":
        run([sys.executable, "-c", found.text], cwd)
    else:
        assert "yaml" == found.language, "a block must be bash, python or yaml"
        document = yaml.safe_load(found.text)
        if "knobs" in document:
            file = folder / "space.yaml"
            file.write_text(found.text, encoding="utf-8")
            assert "my-space" == read_space(file).name
        else:
            run_steps(document["jobs"]["compare"]["steps"], folder)


def run_steps(steps: list[dict[str, str]], folder: Path) -> None:
    """Run a workflow's own steps in the folder; checkout and installation are done already."""
    (folder / "train.yaml").write_bytes((folder / "my-run" / "best.yaml").read_bytes())
    (folder / "current.json").unlink(missing_ok=True)
    script = [step["run"] for step in steps if not step.get("run", "pip").startswith("pip")]
    run(["bash", "-euo", "pipefail", "-c", "\n".join(script)], folder)
    assert "no regression" in (folder / "step-summary.md").read_text(encoding="utf-8")


def run(command: list[str], cwd: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=cwd,
        env={
            **os.environ,
            "PATH": path,
            "OMP_NUM_THREADS": "1",
            "CI": "1",
            "GITHUB_STEP_SUMMARY": "step-summary.md",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert 0 == done.returncode, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


def test_the_commands_a_workflow_runs_exist() -> None:
    from typer.main import get_command

    from autotune.cli.app import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    files = [ROOT / "README.md", ROOT / ".ci" / "compare"]
    files += sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".yml":
            assert yaml.safe_load(text)["jobs"]
        verbs = re.findall(r"^[^#\n]*?(?:run: |^)autotune ([a-z]+)", text, re.MULTILINE)
        assert set(verbs) <= known, file
