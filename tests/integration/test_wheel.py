"""The wheel carries everything: spaces, demo, Python API, from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


def run(*command: str, cwd: Path) -> str:
    """Run a command and return its output; fails with what it printed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def test_a_wheel_in_a_fresh_environment_lists_spaces_runs_the_demo_and_tunes(
    tmp_path: Path,
) -> None:
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
        *("--outdir", str(tmp_path / "dist"), str(ROOT)),
        cwd=tmp_path,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    # The fresh environment sees this one's dependencies, and its own copy of autotune only.
    run(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel), cwd=tmp_path)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    here = [p for p in sys.path if p.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    where = run(str(python), "-c", "import autotune; print(autotune.__file__)", cwd=empty)
    assert Path(where.strip()).is_relative_to(site)
    command = str(python.with_name("autotune"))
    assert "sft" in run(command, "spaces", "list", cwd=empty)
    run(command, "run", "--trials", "2", "--space", "quick", "--out", "demo", cwd=empty)
    assert (empty / "demo" / "best.yaml").is_file()
    code = (
        "from autotune import tune\n"
        "tuned = tune(trials=1, space='quick', out='tuned')\n"
        "print(type(tuned.config).__name__)"
    )
    assert run(str(python), "-c", code, cwd=empty).strip().endswith("SFTConfig")
