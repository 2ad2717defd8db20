"""``make gpu-check``: does on one NVIDIA GPU what a CPU cannot prove; under 8 minutes, no network.

    python -m tests.gpu.check [--out reports/gpu] [--seconds 470] [--only NAME ...]

Every check runs in a process of its own with a time box, so that neither a hang nor a broken CUDA
context reaches the next one. It writes ``NAME.json``; at the end there are ``summary.json`` and
``summary.md``. Exit 0: all passed; 1: one did not.

Without a GPU the same checks run in this process on the CPU with tiny models (a dry run, under a
minute): everything is imported and called, and evidence goes to ``reports/out/gpu``.

On a machine without network whose torch and transformers are other versions, carry wheels of what
it lacks, made beforehand for its Python, e.g. for 3.12::

    pip download -d wheels --no-deps --only-binary=:all: --python-version 3.12 \\
        trl datasets optuna alembic mako colorlog sqlalchemy greenlet pydantic pydantic-core \\
        annotated-types typing-inspection platformdirs plotly ruamel.yaml dill multiprocess xxhash

and there, in the checkout, without touching what is installed::

    python3 -m pip install --no-index --no-deps wheels/*.whl
    OUT_DIR=${OUT:-reports/gpu}; PYTHONPATH=. python3 -m tests.gpu.check --out "$OUT_DIR"

The versions that ran are in ``summary.json``; pyproject.toml has the oldest that are supported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from autotune.probe.launcher import Launcher
from tests.gpu.checks import CHECKS, Found, as_json
from tests.gpu.lab import Lab

REPORTS = Path(__file__).resolve().parents[2] / "reports"
_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "optuna")
DRY_RUN = "dry run: no GPU"


def main() -> int:
    """Run the checks and write what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=470.0, help="for all checks together")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    parser.add_argument("--inside", choices=list(CHECKS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    gpu = _gpu()
    out: Path = given.out or (REPORTS / "gpu" if gpu else REPORTS / "out" / "gpu")
    out.mkdir(parents=True, exist_ok=True)
    if given.inside:
        with opened_lab("cuda:0", out) as lab:
            return 0 if not run_check(given.inside, lab).wrong else 1
    print(gpu or DRY_RUN, flush=True)
    if gpu is None:
        return dry_run(out, given.only)
    start = time.monotonic()

    def run(name: str) -> list[str]:
        left = given.seconds - (time.monotonic() - start)
        return _in_a_process(name, out, min(float(CHECKS[name].seconds), left))

    return _run_all(given.only, out, gpu, run)


def dry_run(out: Path, names: Sequence[str], launcher: Launcher | None = None) -> int:
    """Run checks in this process on the CPU, with tiny models.

    Args:
        out: where evidence goes.
        names: of the checks.
        launcher: starts their measuring processes; None starts a server for them.
    """
    out.mkdir(parents=True, exist_ok=True)
    with opened_lab("cpu", out, launcher) as lab:
        return _run_all(names, out, None, lambda name: run_check(name, lab).wrong)


def _run_all(
    names: Sequence[str], out: Path, gpu: str | None, run: Callable[[str], list[str]]
) -> int:
    """Run checks one after the other and sum them up; returns the exit code."""
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    for name in names:
        at = time.monotonic()
        wrong = run(name)
        rows.append({"check": name, "seconds": round(time.monotonic() - at, 1), "wrong": wrong})
        said = "passed" if not wrong else "; ".join(wrong)
        print(f"{name}: {said} ({rows[-1]['seconds']} s)", flush=True)
    write_summary(out, gpu, rows, time.monotonic() - start)
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
    """Run one check here and write its evidence."""
    try:
        found = CHECKS[name].run(lab)
    except Exception as error:  # noqa: BLE001  (one check must not stop the rest)
        text = traceback.format_exc()[-6000:]
        found = Found({"traceback": text}, [f"{type(error).__name__}: {error}"])
    (lab.out / f"{name}.json").write_text(as_json(found), encoding="utf-8")
    return found


def _in_a_process(name: str, out: Path, seconds: float) -> list[str]:
    """Run one check in a process of its own; whatever it started ends with it."""
    if seconds < 5.0:
        return ["no time was left for it"]
    file = out / f"{name}.json"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.gpu.check", "--inside", name, "--out", str(out)]
    with (out / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            # The lifeline ends its measuring processes; they are sessions of their own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return [f"it did not end within {seconds:.0f} s"]
    if not file.is_file():
        return [f"it ended with {code} and left no evidence; see {name}.log"]
    return list(json.loads(file.read_text(encoding="utf-8"))["wrong"])


def write_summary(out: Path, gpu: str | None, rows: list[dict[str, Any]], seconds: float) -> None:
    """Write ``summary.json`` and ``summary.md``."""
    document = {
        "command": "make gpu-check",
        "device": gpu or DRY_RUN,
        "seconds": round(seconds, 1),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "checks": rows,
    }
    (out / "summary.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    versions = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    lines = [
        "# What was checked on a GPU",
        "",
        f"`make gpu-check` on {document['device']}, {document['seconds']} s in all. {versions}.",
        "",
        "| check | passed | seconds |",
        "|---|---|---|",
        *(f"| {r['check']} | {'; '.join(r['wrong']) or 'yes'} | {r['seconds']} |" for r in rows),
    ]
    (out / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _gpu() -> str | None:
    """Return the name of the first NVIDIA GPU torch can use; None without one."""
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        return None
    return str(torch.cuda.get_device_name(0))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
