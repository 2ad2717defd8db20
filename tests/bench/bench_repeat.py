"""How far numbers can be trusted: repeated peaks, 200 probes in a row, a candidate against itself.

Run with ``make bench-repeat`` on a quiet machine (about 12 minutes); writes
reports/probe-repeatability.{json,md}. AUTOTUNE_REPEAT_SHARE=0.1 does a tenth of it for a try.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.words import describe
from autotune.core.candidate import Candidate
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical, settings
from autotune.study.plan import probe_spec
from tests.bench.session import REPORTS, Session, demo_session, write_evidence
from tests.support.leftovers import Leftovers

pytestmark = pytest.mark.bench
_COMMAND = "make bench-repeat"
_NAME = "probe-repeatability"
_SHARE = float(os.environ.get("AUTOTUNE_REPEAT_SHARE", "1"))
_REPEATS = 5
_PROBES = max(2, round(200 * _SHARE))
_PAIRS = max(2, round(20 * _SHARE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("repeat")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Session]:
    with demo_session(folder) as opened:
        yield opened


def candidates(session: Session) -> dict[str, Candidate]:
    """Return five that use memory in different ways."""
    own = canonical(user_candidate(session.facts), session.facts)
    changes: list[dict[str, Any]] = [
        {},
        {"per_device_train_batch_size": 1, "gradient_checkpointing": "none"},
        {"per_device_train_batch_size": 4, "gradient_checkpointing": "selective"},
        {"per_device_train_batch_size": 4, "padding_free": True, "gradient_checkpointing": "none"},
        {"per_device_train_batch_size": 1, "packing": "bfd", "max_length": 512},
    ]
    found = [canonical(own.with_knobs(**change), session.facts) for change in changes]
    return {describe(candidate): candidate for candidate in found}


def memory_only(session: Session, candidate: Candidate) -> Any:
    """Probe a candidate without its timing."""
    spec = probe_spec(
        candidate,
        settings(candidate, session.facts),
        session.facts,
        session.prepared.model.model_dir,
        session.prepared.profile.rows_dir,
        session.budget,
    )
    spec = spec.model_copy(update={"memory_only": True})
    return session.runner.probe(spec, name="bench", deadline_s=300.0)


def test_repeated_peaks_agree(session: Session) -> None:
    found = {}
    for name, candidate in candidates(session).items():
        reports = [memory_only(session, candidate) for _ in range(_REPEATS)]
        measured = [r.measurement for r in reports if r.measurement is not None]
        assert len(measured) == _REPEATS, [r.ending for r in reports]
        found[name] = {
            kind: [getattr(m.peaks, f"{kind}_bytes") for m in measured]
            for kind in ("allocated", "process")
        }
    spreads = {name: _spread(kinds["allocated"]) for name, kinds in found.items()}
    _add("peaks", {"bytes": found, "allocated_spread_ratio": spreads})
    assert max(spreads.values()) <= 1e-3, spreads


def test_many_probes_in_a_row_leave_nothing(session: Session, folder: Path) -> None:
    few = list(candidates(session).values())
    memory_only(session, few[0])  # what is opened once and kept is opened now
    temporary = Path(tempfile.gettempdir())
    names = {entry.name for entry in temporary.iterdir()}
    before = Leftovers.look(folder / "prepared", folder)
    outcomes: dict[str, int] = {}
    for probe in range(_PROBES):
        outcome = memory_only(session, few[probe % len(few)]).ending.outcome.value
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    after = Leftovers.look(folder / "prepared", folder)
    new = sorted({entry.name for entry in temporary.iterdir()} - names)
    body = {"probes": _PROBES, "outcomes": outcomes, "new_in_tmp": new}
    _add("leftovers", {**body, "before": vars(before), "after": vars(after)})
    assert before == after
    assert {"fits": _PROBES} == outcomes


def test_a_candidate_is_as_fast_as_itself(session: Session) -> None:
    found = {}
    for name, candidate in list(candidates(session).items())[:4:3]:
        seconds = []
        for _ in range(2 * _PAIRS):
            report, estimate = session.measure(candidate)
            assert estimate is not None, report.ending
            seconds.append(estimate.score_seconds)
        apart = [a / b - 1.0 for a, b in zip(seconds[::2], seconds[1::2], strict=True)]
        found[name] = {
            "pass_seconds": seconds,
            "median_difference_ratio": statistics.median(apart),
            "median_absolute_difference_ratio": statistics.median(abs(a) for a in apart),
            "largest_difference_ratio": max(apart, key=abs),
        }
    _add("speed", found)


def _spread(values: list[int]) -> float:
    return (max(values) - min(values)) / min(values)


def _add(part: str, body: dict[str, Any]) -> None:
    """Add one part to the evidence; parts of an earlier, equally long run are kept."""
    file = REPORTS / f"{_NAME}.json"
    stored = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    kept = {p: stored[p] for p in ("peaks", "leftovers", "speed") if p in stored}
    parts = {**kept, part: body, "load_average": os.getloadavg()}
    write_evidence(_NAME, _COMMAND, parts)
    (REPORTS / f"{_NAME}.md").write_text(_in_words(parts), encoding="utf-8")


def _in_words(parts: dict[str, Any]) -> str:
    lines = [
        "# How far a probe's numbers can be trusted",
        "",
        f"`{_COMMAND}` makes this file, on the demo job; raw numbers are in the JSON beside it. "
        f"Load average at the end: {parts['load_average'][0]:.2f}.",
    ]
    if "peaks" in parts:
        lines += ["", "| candidate | allocated peak, spread of 5 repeats | goal |", "|---|---|---|"]
        spreads = parts["peaks"]["allocated_spread_ratio"].items()
        lines += [f"| {name} | {spread:.4%} | at most 0.1 % |" for name, spread in spreads]
    if "leftovers" in parts:
        left = parts["leftovers"]
        lines += ["", f"{left['probes']} probes in a row ({left['outcomes']}), counted before and "]
        lines[-1] += "after in this process and everything it started:"
        lines += ["", "| | before | after |", "|---|---|---|"]
        lines += [f"| {n} | {left['before'][n]} | {left['after'][n]} |" for n in left["before"]]
        lines += [f"| new in the folder for temporary files | | {len(left['new_in_tmp'])} |"]
    if "speed" in parts:
        lines += ["", "The same candidate twice, in turns; goal: under 3 % apart in median.", ""]
        lines += ["| candidate | median | median, unsigned | largest |", "|---|---|---|---|"]
        lines += [
            f"| {name} | {row['median_difference_ratio']:+.1%} "
            f"| {row['median_absolute_difference_ratio']:.1%} "
            f"| {row['largest_difference_ratio']:+.1%} |"
            for name, row in parts["speed"].items()
        ]
    return "\n".join(lines) + "\n"
