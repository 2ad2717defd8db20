"""An unchanged tree passes ``.ci/compare`` ten times in a row, with its own limits.

Run with ``make bench-compare`` (7 minutes); writes reports/compare-stability.{json,md}. What the
script catches is in tests/integration/test_compare.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from autotune.core.result import Result, read_result
from autotune.core.units import show_bytes
from autotune.report import compare, parse_thresholds
from tests.bench.session import REPORTS, write_evidence

pytestmark = pytest.mark.bench
ROOT = REPORTS.parent
_COMMAND = "make bench-compare"
_NAME = "compare-stability"
_RUNS = 10
_SCRIPT = ROOT / ".ci" / "compare"
_LIMITS = tuple(re.findall(r"--fail-on (\S+)", _SCRIPT.read_text(encoding="utf-8")))
_BASELINE = REPORTS / "baselines" / "demo.json"
#: Columns of the table: quantity and title.
_COLUMNS = {
    "peak_memory.allocated": "allocated",
    "peak_memory.process": "process",
    "throughput": "throughput, ratio to the reference",
    "step_time": "step time",
}


def test_an_unchanged_tree_passes_ten_times_in_a_row() -> None:
    baseline = read_result(_BASELINE)
    runs = [run(baseline) for _ in range(_RUNS)]
    body = {"limits": _LIMITS, "baseline_created": baseline.created, "runs": runs}
    write_evidence(_NAME, _COMMAND, body)
    (REPORTS / f"{_NAME}.md").write_text(in_words(runs, baseline), encoding="utf-8")
    assert [0] * _RUNS == [run["exit_code"] for run in runs]


def run(baseline: Result) -> dict[str, Any]:
    load, start = os.getloadavg()[0], time.monotonic()
    autotune = Path(sys.executable).parent / "autotune"
    done = subprocess.run(
        [str(_SCRIPT)],
        check=False,
        env={**os.environ, "AUTOTUNE": str(autotune)},
        capture_output=True,
        text=True,
    )
    took = time.monotonic() - start
    print(done.stdout[-2000:], done.stderr[-2000:])
    current = read_result(ROOT / ".make" / "compare" / "current.json")
    found = compare(
        baseline, current, parse_thresholds(_LIMITS), allow_different=True, speed="ratio"
    )
    rows = {row.name: row for row in found.rows}
    return {
        "load_average": load,
        "seconds": took,
        "exit_code": done.returncode,
        "change_ratio": {name: rows[name].change_ratio for name in _COLUMNS},
        "value": {name: rows[name].current for name in _COLUMNS},
        "differences": list(found.differences),
    }


def in_words(runs: list[dict[str, Any]], baseline: Result) -> str:
    passed = sum(run["exit_code"] == 0 for run in runs)
    lines = [
        "# An unchanged tree passes ten times in a row",
        "",
        f"`{_COMMAND}` makes this file: `.ci/compare` measured the demo job {len(runs)} times "
        f"against `reports/baselines/demo.json` ({baseline.created}, {baseline.device.name}, "
        f"{baseline.device.cores} cores, {baseline.environment.platform}). "
        f"{passed} of {len(runs)} passed. Changes are against the baseline; the load is that of "
        "the minute before each run.",
        "",
        f"| run | load | took | {' | '.join(_COLUMNS.values())} | exit code |",
        f"|{' ---: |' * (len(_COLUMNS) + 4)}",
    ]
    for number, one in enumerate(runs, 1):
        changes = " | ".join(f"{one['change_ratio'][name]:+.1%}" for name in _COLUMNS)
        lines.append(
            f"| {number} | {one['load_average']:.2f} | {one['seconds']:.0f} s | {changes} "
            f"| {one['exit_code']} |"
        )
    allocated = {run["value"]["peak_memory.allocated"] for run in runs}
    spread = {n: max(abs(run["change_ratio"][n]) for run in runs) for n in _COLUMNS}
    lines += [
        "",
        f"What the script allows: {', '.join(f'`{limit}`' for limit in _LIMITS)}.",
        "",
        f"- Allocated bytes took {len(allocated)} value(s), {show_bytes(int(min(allocated)))} the "
        "least. Another processor or another version of torch may choose other kernels; then the "
        "baseline has to be stored anew (`.ci/compare --store`).",
        f"- Resident pages of the process moved by up to {spread['peak_memory.process']:.1%}, the "
        f"ratio to the reference by up to {spread['throughput']:.1%}, the bare step time by up to "
        f"{spread['step_time']:.1%}.",
        "- What is caught is in `tests/integration/test_compare.py`: a knob flipped, a library "
        "call slowed, an optimizer that keeps more state. A slow-down below the limits, or one "
        "that hits the config and its reference alike and stays below the limit of the step time, "
        "is not caught on a shared machine.",
    ]
    return "\n".join(lines) + "\n"
