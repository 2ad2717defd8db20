"""Measures every candidate of the demo space: the table that shows the landscape is not flat.

Run with ``make bench-search``; writes reports/demo-landscape.{json,md}.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.words import describe
from autotune.core.candidate import Candidate
from autotune.core.units import show_bytes
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical, settings
from tests.bench.session import REPORTS, demo_session, write_evidence

pytestmark = pytest.mark.bench
_COMMAND = "make bench-search"


def test_every_candidate_of_the_demo_space_is_measured(tmp_path: Path) -> None:
    rows = []
    with demo_session(tmp_path) as session:
        own = canonical(user_candidate(session.facts), session.facts)
        batch_only = {c.key for c in session.space.candidates if _only_batch(c, own)}
        everything = [own, *(c for c in session.space.candidates if c.key != own.key)]
        for candidate in everything:
            report, _ = session.measure(candidate)
            fits = report.ending.outcome.value
            free, cost = session.measure(candidate, capped=False)
            assert free.measurement is not None and cost is not None
            accumulation = settings(candidate, session.facts).accumulation
            rows.append(
                {
                    "candidate": describe(candidate, accumulation),
                    "knobs": candidate.knobs,
                    "outcome": fits,
                    "own": candidate.key == own.key,
                    "batch_only": candidate.key in batch_only,
                    "allocated_bytes": free.measurement.peaks.allocated_bytes,
                    "process_bytes": free.measurement.peaks.process_bytes,
                    "score_seconds": cost.score_seconds,
                    "useful_tokens_per_s": cost.useful_tokens_per_s,
                    "padding_ratio": cost.padding_ratio,
                    "wall_seconds": report.wall_seconds,
                }
            )
    rows.sort(key=lambda r: r["score_seconds"])
    write_evidence(
        "demo-landscape", _COMMAND, {"budget_bytes": session.budget.total_bytes, "rows": rows}
    )
    lines = [
        "# Every candidate of the demo space, measured",
        "",
        f"`{_COMMAND}` makes this table. Budget {show_bytes(session.budget.total_bytes)}, probes "
        f"may use {show_bytes(session.budget.usable_bytes)}. Times are of candidates measured "
        "without the cap, so that those that do not fit have one too; fastest first. The machine "
        "is shared: read ratios, not seconds.",
        "",
        "| candidate | under the cap | allocated | process | pass (s) | useful tok/s | padding |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        name = r["candidate"] + (" **(TRL's default)**" if r["own"] else "")
        lines.append(
            f"| {name} | {r['outcome']} | {show_bytes(r['allocated_bytes'])} | "
            f"{show_bytes(r['process_bytes'])} | {r['score_seconds']:.2f} | "
            f"{r['useful_tokens_per_s']:,.0f} | {r['padding_ratio']:.0%} |"
        )
    (REPORTS / "demo-landscape.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _only_batch(candidate: Candidate, own: Candidate) -> bool:
    return set(candidate.differences(own)) <= {"per_device_train_batch_size"}
