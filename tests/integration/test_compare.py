"""`autotune probe` and `autotune compare` as CI uses them: planted regressions are caught.

What is planted sits in a ``sitecustomize`` module on ``PYTHONPATH``, as a worse library would, and
only the measuring process loads it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autotune.core.result import read_result
from tests.support.cli import autotune
from tests.support.models import tiny_model

pytestmark = pytest.mark.integration

#: Loaded at the start of every Python process; acts in the measuring process alone.
_PLANT = """\
import sys

if "autotune.child" in getattr(sys, "orig_argv", ()):
    import torch
{body}
"""
#: ``{seconds}`` in every call of attention.
SLOWED = """\
    import time

    own = torch.nn.functional.scaled_dot_product_attention

    def slower(*arguments, **keywords):
        time.sleep({seconds})
        return own(*arguments, **keywords)

    torch.nn.functional.scaled_dot_product_attention = slower
"""
#: An optimizer that keeps more state for each weight than it did.
FATTENED = """\
    own = torch.optim.AdamW.step

    def fatter(self, *arguments, **keywords):
        done = own(self, *arguments, **keywords)
        for weight, state in self.state.items():
            state.setdefault("more", torch.ones(32 * weight.numel()))
        return done

    torch.optim.AdamW.step = fatter
"""
#: One step of the tiny model takes some hundredths of a second, some tenths on a busy machine.
STEP = "step_time:+1.5s"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model, rows, a config and its stored baseline."""
    folder = tmp_path_factory.mktemp("job")
    tiny_model(folder / "model", hidden_size=64, intermediate_size=256)
    rows = [json.dumps({"text": "word " * n}) for n in range(20, 84)]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "own.yaml").write_text(
        "per_device_train_batch_size: 8\nmax_length: 128\nbf16: false\n", encoding="utf-8"
    )
    assert 0 == measure(folder, "baseline.json")
    return folder


def measure(folder: Path, out: str, *more: str, repeats: int = 1, plant: str | None = None) -> int:
    """Measure the job's config and return the exit code."""
    env = {"OMP_NUM_THREADS": "1"}
    if plant is not None:
        site = folder / f"site-{out}"
        site.mkdir()
        text = _PLANT.replace("{body}", plant)
        (site / "sitecustomize.py").write_text(text, encoding="utf-8")
        env["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = autotune(
        *["probe", "--model", "model", "--dataset", "rows.jsonl", "--config", "own.yaml"],
        *["--memory", "2GiB", "--repeats", str(repeats), "--out", out, *more],
        cwd=folder,
        env=env,
    )
    print(done.stderr)
    return done.returncode


def compared(
    folder: Path, current: str, *options: str, baseline: str = "baseline.json"
) -> tuple[int, str]:
    done = autotune("compare", baseline, current, *options, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_an_unchanged_tree_passes(job: Path) -> None:
    assert 0 == measure(job, "same.json", repeats=2)
    fail_on = ["--fail-on", "peak_memory.allocated:+0.5%", "--fail-on", STEP]
    code, said = compared(job, "same.json", *fail_on)
    assert (0, True) == (code, "no regression" in said), said
    result = read_result(job / "same.json")
    assert result.best == result.trials[0].candidate.key
    assert ["baseline", *["confirmation"] * 3] == [t.role for t in result.trials]
    assert result.speedup is not None
    assert 2 == result.speedup.pairs


def test_a_flipped_knob_is_caught_and_named(job: Path) -> None:
    assert 0 == measure(job, "flipped.json", "--set", "gradient_checkpointing=false")
    code, said = compared(job, "flipped.json", "--fail-on", "peak_memory.allocated:+3%")
    assert 1 == code, said
    assert "gradient_checkpointing: full in the baseline, none now" in said


def test_a_fattened_library_call_is_caught(job: Path) -> None:
    assert 0 == measure(job, "fat.json", plant=FATTENED)
    code, said = compared(job, "fat.json", "--fail-on", "peak_memory.allocated:+3%")
    assert (1, True) == (code, "1 regression(s)" in said), said


def test_a_slowed_library_call_is_caught(job: Path) -> None:
    # Both mostly sleep (a step is one layer, run twice with checkpointing), so that one takes 0.5 s
    # and the other 2 s whatever else the machine does; half of the difference is held against it.
    for seconds in (0.25, 1.0):
        plant = SLOWED.replace("{seconds}", str(seconds))
        assert 0 == measure(job, f"slowed-{seconds}.json", plant=plant)
    fail_on = ["--fail-on", "peak_memory.allocated:+0.5%", "--fail-on", "step_time:+0.75s"]
    fail_on += ["--format", "json"]
    code, said = compared(job, "slowed-1.0.json", *fail_on, baseline="slowed-0.25.json")
    found = {row["name"]: row["verdict"] for row in json.loads(said)["rows"]}
    assert (1, "ok", "regression") == (code, found["peak_memory.allocated"], found["step_time"])


def test_a_config_that_does_not_fit_leaves_a_document_that_fails(job: Path) -> None:
    assert 3 == measure(job, "small.json", "--memory", "30MiB")
    code, said = compared(job, "small.json")
    assert (1, True) == (code, "does not run" in said), said


@pytest.mark.parametrize("baseline", ["missing.json", "damaged.json", "other.json"])
def test_a_missing_damaged_or_unlike_baseline_is_exit_2_and_never_a_pass(
    job: Path, baseline: str
) -> None:
    text = (job / "baseline.json").read_text(encoding="utf-8")
    (job / "damaged.json").write_text(text[: len(text) // 2], encoding="utf-8")
    document = json.loads(text)
    document["environment"]["versions"]["torch"] = "1.0"
    (job / "other.json").write_text(json.dumps(document), encoding="utf-8")
    done = autotune("compare", baseline, "baseline.json", cwd=job)
    assert 2 == done.returncode
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    if baseline == "other.json":
        assert "torch: 1.0 in the baseline" in done.stderr
        allowed = autotune("compare", baseline, "baseline.json", "--allow-different", cwd=job)
        assert (0, True) == (allowed.returncode, "torch: 1.0 in" in allowed.stdout)


def test_a_quantity_nobody_measured_is_exit_2(job: Path) -> None:
    fail_on = ["--fail-on", "peak_memory.device:+1%"]
    assert 2 == compared(job, "baseline.json", *fail_on)[0]


def test_an_existing_file_is_refused_before_anything_is_measured(job: Path) -> None:
    before = (job / "baseline.json").read_bytes()
    assert 2 == measure(job, "baseline.json")
    assert before == (job / "baseline.json").read_bytes()
