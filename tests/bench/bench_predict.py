"""How far traced peaks are from measured ones, over all trainers; and what tracing costs.

Run with ``make bench-predict`` on a quiet machine (about 15 minutes); writes
reports/predict-accuracy.{json,md} and reports/predict-trace.{json,md}.
AUTOTUNE_PREDICT_EACH=1 measures one candidate of every stratum for a try.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.predict.traced import trace
from autotune.probe.runner import Runner
from autotune.probe.warm import WarmServer
from tests.bench.predict_grid import STRATA, Case, cases, models
from tests.bench.session import REPORTS, write_evidence
from tests.support.peaks import measured_bytes, request_of, step_bytes

pytestmark = pytest.mark.bench
_COMMAND = "make bench-predict"
_EACH = int(os.environ.get("AUTOTUNE_PREDICT_EACH", "11"))
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Pairing:
    """A traced peak beside the measured one."""

    case: Case
    traced_bytes: int
    measured_bytes: int
    phase: str

    @property
    def error(self) -> float:
        """Relative error, positive where the trace is too high."""
        return self.traced_bytes / self.measured_bytes - 1.0


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("predict")
    (folder / "logs").mkdir()
    server = WarmServer(folder / "logs")
    with Runner(server, folder) as opened:
        server.wait_ready()
        yield opened


def test_traced_peaks_against_measured_ones(runner: Runner, tmp_path: Path) -> None:
    folders = models(tmp_path / "models")
    found: list[Pairing] = []
    failed: list[str] = []
    for number, case in enumerate(cases(_EACH)):
        request = request_of(case.trainer, folders[case.model], case.options, case.rows)
        try:
            measured = measured_bytes(runner, request, tmp_path / f"rows-{number}")
        except AssertionError as error:
            failed.append(f"{case.stratum}: {error}")
            continue
        traced, phase = step_bytes(dict(trace(request).phase_bytes))
        found.append(Pairing(case, traced, measured, phase))
    _write_accuracy(found, failed)
    assert not failed
    assert statistics.median(abs(p.error) for p in found) < 0.01
    assert max(abs(p.error) for p in found) < 0.05


def _write_accuracy(found: list[Pairing], failed: list[str]) -> None:
    errors = [abs(p.error) for p in found]
    goals = {
        "median error under 1 %": statistics.median(errors) < 0.01,
        "worst error under 5 %": max(errors) < 0.05,
        "at least 150 candidates": len(found) >= 150,
    }
    rows = [
        {
            "stratum": p.case.stratum,
            "model": p.case.model,
            "options": p.case.options,
            "rows": [row.model_dump(exclude_defaults=True) for row in p.case.rows],
            "traced_bytes": p.traced_bytes,
            "measured_bytes": p.measured_bytes,
            "phase": p.phase,
        }
        for p in found
    ]
    write_evidence(
        "predict-accuracy", _COMMAND, {"goals": goals, "candidates": rows, "failed": failed}
    )
    lines = [
        "# Traced peaks against measured ones",
        "",
        f"`{_COMMAND}` makes this file: {len(found)} candidates drawn at random, each traced on "
        "fake tensors and measured in a real probe on the CPU (live bytes of torch's allocator "
        "over one update, which the meter counts without any of the tracer's code).",
        "",
        f"Median error {_percent(statistics.median(errors))} (goal: under 1 %), worst "
        f"{_percent(max(errors))} (goal: under 5 %).",
        "",
        "| stratum | candidates | peaks, MiB | median error | worst error |",
        "|---|---|---|---|---|",
        *(_stratum_row(s.name, [p for p in found if p.case.stratum == s.name]) for s in STRATA),
        "",
        f"Phase of the peak: {_phases(found)}. Model: {_models(found)}.",
        *([""] + [f"- not measured: {text}" for text in failed] if failed else []),
    ]
    (REPORTS / "predict-accuracy.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _stratum_row(name: str, members: list[Pairing]) -> str:
    if not members:
        return f"| {name} | 0 | | | |"
    errors = [abs(p.error) for p in members]
    sizes = [p.measured_bytes / _MIB for p in members]
    return (
        f"| {name} | {len(members)} | {min(sizes):.0f} to {max(sizes):.0f} "
        f"| {_percent(statistics.median(errors))} | {_percent(max(errors))} |"
    )


def _phases(found: list[Pairing]) -> str:
    names = sorted({p.phase for p in found})
    return ", ".join(f"{n} {sum(p.phase == n for p in found)}" for n in names)


def _models(found: list[Pairing]) -> str:
    names = sorted({p.case.model for p in found})
    return ", ".join(f"{n} {sum(p.case.model == n for p in found)}" for n in names)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"
