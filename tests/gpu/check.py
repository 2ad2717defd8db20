"""``make gpu-check``: does on one NVIDIA GPU what a CPU cannot prove; ten minutes, no network.

    python -m tests.gpu.check [--out DIR] [--only NAME ...]

Every check runs in a process of its own with a box of time; one that overruns it is ended by its
id, so that neither a hang nor a broken CUDA context reaches the next one. Evidence is written as it
is found, to ``NAME.json``; ``gpu-check.md`` and ``gpu-check.json`` are written anew after every
check, in ``reports/`` where there is a GPU. Exit 0: all passed; 1: one did not.

Without a GPU the same checks run in this process on the CPU with tiny models (a dry run, about a
minute): everything is imported and called, and evidence goes to ``reports/out/gpu``.

On a machine without network whose torch and transformers are other versions, carry wheels of what
it lacks, made beforehand for its Python, e.g. for 3.12::

    pip download -d wheels --no-deps --only-binary=:all: --python-version 3.12 \\
        trl datasets optuna alembic mako colorlog sqlalchemy greenlet pydantic pydantic-core \\
        annotated-types typing-inspection platformdirs plotly ruamel.yaml dill multiprocess xxhash

and there, in the checkout, without touching what is installed::

    python3 -m pip install --no-index --no-deps wheels/*.whl
    OUT_DIR=${OUT:-reports/out/gpu}; PYTHONPATH=. python3 -m tests.gpu.check --out "$OUT_DIR"

The versions that ran are in ``gpu-check.md``; pyproject.toml has the oldest that are supported.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.probe.launcher import Launcher
from tests.gpu.checks import CHECKS
from tests.gpu.found import Found
from tests.gpu.lab import PACKAGES, Lab, installed

REPORTS = Path(__file__).resolve().parents[2] / "reports"
DRY_RUN = "dry run: no GPU"


def main() -> int:
    """Run the checks and write what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    parser.add_argument("--inside", choices=list(CHECKS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    out: Path = given.out or REPORTS / "out" / "gpu"
    out.mkdir(parents=True, exist_ok=True)
    if given.inside:
        with opened_lab("cuda:0", out) as lab:
            return 0 if not run_check(given.inside, lab).wrong else 1
    gpu = _gpu()
    print(gpu or DRY_RUN, flush=True)
    if gpu is None:
        return dry_run(out, given.only)
    summary = out if given.out else REPORTS
    return _run_all(given.only, out, summary, gpu, lambda name: _in_a_process(name, out))


def dry_run(out: Path, names: Sequence[str], launcher: Launcher | None = None) -> int:
    """Run checks in this process on the CPU, with tiny models.

    Args:
        out: where evidence goes.
        names: of the checks.
        launcher: starts their measuring processes; None starts a server for them.
    """
    out.mkdir(parents=True, exist_ok=True)
    with opened_lab("cpu", out, launcher) as lab:
        return _run_all(names, out, out, DRY_RUN, lambda name: run_check(name, lab).wrong)


def _run_all(
    names: Sequence[str], out: Path, summary: Path, device: str, run: Callable[[str], list[str]]
) -> int:
    """Run checks one after the other and sum up after each; returns the exit code."""
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    for name in names:
        at = time.monotonic()
        wrong = run(name)
        rows.append({"check": name, "seconds": round(time.monotonic() - at, 1), "wrong": wrong})
        said = "passed" if not wrong else "; ".join(wrong)
        print(f"{name}: {said} ({rows[-1]['seconds']} s)", flush=True)
        write_summary(out, summary, device, rows, time.monotonic() - start)
    return 1 if any(row["wrong"] for row in rows) else 0


@contextmanager
def opened_lab(device: str, out: Path, launcher: Launcher | None = None) -> Iterator[Lab]:
    """Open scratch space; it and everything started go after the block."""
    with tempfile.TemporaryDirectory(prefix="autotune-gpu-check-") as folder:
        lab = Lab(device, Path(folder), out, launcher)
        try:
            yield lab
        finally:
            lab.close()


def run_check(name: str, lab: Lab) -> Found:
    """Run one check here; its evidence is written as it is found."""
    found = Found(lab.out / f"{name}.json")
    found.write()
    try:
        CHECKS[name].run(lab, found)
    except Exception as error:  # noqa: BLE001  (one check must not stop the rest)
        found.keep("traceback", traceback.format_exc()[-6000:])
        found.expect(False, f"{type(error).__name__}: {error}")
    return found


def _in_a_process(name: str, out: Path) -> list[str]:
    """Run one check in a process of its own; whatever it started ends with it."""
    file = out / f"{name}.json"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.gpu.check", "--inside", name, "--out", str(out)]
    return ended_in_time(command, out / f"{name}.log", CHECKS[name].seconds, file)


def ended_in_time(command: Sequence[str], log_file: Path, seconds: float, file: Path) -> list[str]:
    """Run a check's process and return what is wrong; one that overruns its box is ended.

    Args:
        command: the process; it leaves its evidence in ``file``.
        log_file: what it says.
        seconds: its box.
        file: its evidence, as far as it got.
    """
    late = ""
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            # The lifeline ends its measuring processes; they are sessions of their own.
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            late = f"it was ended after the {seconds:.0f} s of its box"
    if not file.is_file():
        return [late or f"it ended with {code} and left no evidence; see {log_file.name}"]
    wrong = list(json.loads(file.read_text(encoding="utf-8"))["wrong"])
    if not late and code not in (0, 1):
        late = f"it ended with {code} before it was through; see {log_file.name}"
    return [*wrong, late] if late else wrong


def write_summary(
    out: Path, summary: Path, device: str, rows: list[dict[str, Any]], seconds: float
) -> None:
    """Write ``gpu-check.json``, all evidence in it, and ``gpu-check.md``."""
    evidence = {
        row["check"]: json.loads(file.read_text(encoding="utf-8"))["evidence"]
        for row in rows
        if (file := out / f"{row['check']}.json").is_file()
    }
    versions = {name: installed(name) for name in PACKAGES}
    document = {
        "command": "make gpu-check",
        "device": device,
        "seconds": round(seconds, 1),
        "versions": versions,
        "checks": rows,
        "evidence": evidence,
    }
    text = json.dumps(document, indent=1) + "\n"
    (summary / "gpu-check.json").write_text(text, encoding="utf-8")
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        "# What was checked on a GPU",
        "",
        f"`make gpu-check` on {device}, {document['seconds']} s in all. {named}.",
        "All evidence is in `gpu-check.json`.",
        "",
        "| check | passed | seconds |",
        "|---|---|---|",
        *(f"| {r['check']} | {'; '.join(r['wrong']) or 'yes'} | {r['seconds']} |" for r in rows),
    ]
    (summary / "gpu-check.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _gpu() -> str | None:
    """Return the name of the first NVIDIA GPU torch can use; None without one."""
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    return str(torch.cuda.get_device_name(0))


if __name__ == "__main__":
    sys.exit(main())
