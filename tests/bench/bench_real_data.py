"""Tunes the demo model on the three real files of the shared data folder and records the answers.

Run with ``make bench-real``; writes reports/real-data.{json,md}.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.words import accumulation_of, describe
from autotune.core.result import Result, read_result
from autotune.core.units import show_bytes, show_ratio
from tests.bench.session import REPORTS, write_evidence
from tests.support.cli import DATA, autotune

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder is not beside the clone"),
]
_FILES = ("alpaca_en_demo.json", "glaive_toolcall_en_demo.json", "c4_demo.jsonl")
_OPTIONS = "--memory 2GiB --space quick --trials 3 --set max_length=256 --set bf16=false"


def test_the_demo_model_is_tuned_on_real_rows(tmp_path: Path) -> None:
    results: dict[str, Result] = {}
    for name in _FILES:
        command = (
            "run",
            "--model",
            "demo",
            "--dataset",
            str(DATA / name),
            *_OPTIONS.split(),
            "--out",
            name,
        )
        done = autotune(*command, cwd=tmp_path, timeout_s=1200)
        assert done.returncode == 0, done.stderr[-2000:]
        results[name] = read_result(tmp_path / name)
    rows = {name: _row(result) for name, result in results.items()}
    write_evidence("real-data", "make bench-real", {"options": _OPTIONS, "files": rows})
    lines = [
        "# The demo model tuned on real rows",
        "",
        "`make bench-real` makes this file. Each row is one command:",
        "",
        "```bash",
        *(
            f"autotune run --model demo --dataset ../shared/data/{name} {_OPTIONS}"
            for name in _FILES
        ),
        "```",
        "",
        "| file | layout | rows | chosen | against the config as given | peak | tokens kept |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['layout']} | {row['rows']} | {row['chosen']} | {row['speedup']} | "
            f"{row['peak']} | {row['kept']} |"
        )
    lines += ["", "Measured on two shared cores: read the ratios, not as advice for a GPU."]
    (REPORTS / "real-data.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _row(result: Result) -> dict[str, object]:
    best = result.best_trial
    assert best is not None and best.estimate is not None
    measured = best.report.measurement
    assert measured is not None
    ratio = result.speedup
    return {
        "layout": result.profile.layout,
        "rows": result.profile.rows_used,
        "chosen": describe(best.candidate, accumulation_of(best)),
        "because": result.chosen_because,
        "verification": result.verification,
        "speedup": "it is the config as given"
        if ratio is None
        else f"{ratio.value:.2f}x (95 % interval {ratio.low:.2f} to {ratio.high:.2f})",
        "peak": show_bytes(measured.peaks.deciding_bytes or 0),
        "kept": show_ratio(best.estimate.retention_ratio),
        "probes": len(result.trials),
        "search_seconds": round(result.search_seconds),
    }
