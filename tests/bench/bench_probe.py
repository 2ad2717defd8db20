"""What a probe costs beyond its steps: warm against cold, side by side; and how fast help answers.

Run with ``make bench-probe``; writes reports/probe-overhead.{json,md}.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.core.measurement import ProbeReport
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical, settings
from autotune.probe.cold import ColdLauncher
from autotune.probe.runner import Runner
from autotune.study.plan import probe_spec
from tests.bench.session import REPORTS, demo_session, write_evidence

pytestmark = pytest.mark.bench
_COMMAND = "make bench-probe"
_ROUNDS = 8


def test_fixed_cost_of_warm_and_cold_probes(tmp_path: Path) -> None:
    with demo_session(tmp_path / "warm") as session:
        default = canonical(user_candidate(session.facts), session.facts)
        candidate = canonical(
            default.with_knobs(
                per_device_train_batch_size=4, padding_free=True, gradient_checkpointing="none"
            ),
            session.facts,
        )
        spec = probe_spec(
            candidate,
            settings(candidate, session.facts),
            session.facts,
            session.prepared.model.model_dir,
            session.prepared.profile.rows_dir,
            session.budget,
        )
        with Runner(ColdLauncher(), tmp_path / "cold") as cold_runner:
            pairs = [
                (
                    _fixed(session.runner.probe(spec, name="warm", deadline_s=120.0)),
                    _fixed(cold_runner.probe(spec, name="cold", deadline_s=120.0)),
                )
                for _ in range(_ROUNDS)
            ]
    warm, cold = [p[0] for p in pairs], [p[1] for p in pairs]
    ratios = [c / w for w, c in pairs]
    helps = [_help_seconds() for _ in range(_ROUNDS)]
    body = {
        "warm_fixed_seconds": warm,
        "cold_fixed_seconds": cold,
        "cold_over_warm": ratios,
        "help_seconds": helps,
        "goals": {
            "warm under 0.5 s (median)": statistics.median(warm) < 0.5,
            "cold at least 6 times warm (median)": statistics.median(ratios) >= 6.0,
            "help under 0.3 s (median)": statistics.median(helps) < 0.3,
        },
    }
    write_evidence("probe-overhead", _COMMAND, body)
    lines = [
        "# What a probe costs beyond its steps",
        "",
        f"`{_COMMAND}` makes this file: the demo job's winner, {_ROUNDS} rounds, warm and cold in "
        "turns. Fixed cost is wall time minus all micro-steps and optimizer updates.",
        "",
        "| | median s | min to max |",
        "|---|---|---|",
        _row("warm probe, fixed cost (goal: under 0.5)", warm),
        _row("cold probe, fixed cost", cold),
        _row("cold over warm, a ratio (goal: at least 6)", ratios),
        _row("`autotune --help` (goal: under 0.3)", helps),
    ]
    (REPORTS / "probe-overhead.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _fixed(report: ProbeReport) -> float:
    measured = report.measurement
    assert measured is not None, report.ending
    return report.wall_seconds - measured.steps_seconds


def _help_seconds() -> float:
    start = time.perf_counter()
    subprocess.run(
        [str(Path(sys.executable).with_name("autotune")), "--help"],
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - start


def _row(name: str, values: list[float]) -> str:
    return f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |"
