"""How far numbers can be trusted: repeated peaks, 200 probes in a row, a candidate against itself.

Every probe serves each question it can. Run with ``make bench-repeat`` on a quiet machine (about 7
minutes); writes reports/probe-repeatability.{json,md}. AUTOTUNE_REPEAT_SHARE=0.1 does a tenth of it
for a try, and writes to reports/out.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.words import describe
from autotune.core.candidate import Candidate
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical
from tests.bench.session import REPORTS, Session, demo_session, write_evidence
from tests.support.leftovers import Leftovers

pytestmark = pytest.mark.bench
_COMMAND = "make bench-repeat"
_NAME = "probe-repeatability"
_SHARE = float(os.environ.get("AUTOTUNE_REPEAT_SHARE", "1"))
_REPEATS = 5
_PROBES = max(2, round(200 * _SHARE))
_PAIRS = max(2, round(10 * _SHARE))
_OUT = REPORTS if _SHARE == 1.0 else REPORTS / "out"
_MOST_APART_RATIO = 0.03
#: What the probes that only fill up do, in turns: they end in every ordinary way.
_ENDINGS: tuple[dict[str, Any], ...] = ({}, {"cap_bytes": 2**20}, {"rows_dir": "/nowhere"})


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


@pytest.fixture(scope="module")
def probes(session: Session, folder: Path) -> dict[str, Any]:
    """Run all probes in a row, each serving every question, and write the evidence once."""
    few = candidates(session)
    timed = dict(list(few.items())[:4:3])
    session.probe(next(iter(few.values())))  # what is opened once and kept is opened now
    before = Leftovers.look(folder / "tmp", folder)
    start, outcomes = time.monotonic(), Counter[str]()
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for name in [name for _ in range(_PAIRS) for name in timed for _ in range(2)]:
        report, estimate = session.measure(few[name])
        outcomes[report.ending.outcome.value] += 1
        if estimate is not None:
            seconds[name].append(estimate.score_seconds)
    found: dict[str, dict[str, list[int]]] = {
        name: {"allocated": [], "process": []} for name in few
    }
    for name in [name for _ in range(_REPEATS) for name in few]:
        report = session.probe(few[name])
        outcomes[report.ending.outcome.value] += 1
        for kind, values in found[name].items() if report.measurement is not None else ():
            values.append(getattr(report.measurement.peaks, f"{kind}_bytes"))
    # What a probe leaves behind does not depend on its size: the rest of them are small.
    small = canonical(
        user_candidate(session.facts).with_knobs(per_device_train_batch_size=1, max_length=64),
        session.facts,
    )
    while outcomes.total() < _PROBES:
        changes = _ENDINGS[outcomes.total() % len(_ENDINGS)]
        outcomes[session.probe(small, **changes).ending.outcome.value] += 1
    after = Leftovers.look(folder / "tmp", folder)
    parts = {
        "seconds": time.monotonic() - start,
        "load_average": os.getloadavg(),
        "peaks": {
            "bytes": found,
            "allocated_spread_ratio": {n: _spread(k["allocated"]) for n, k in found.items()},
        },
        "leftovers": {
            "probes": outcomes.total(),
            "outcomes": dict(outcomes),
            "before": vars(before),
            "after": vars(after),
        },
        "speed": {name: _apart(times) for name, times in seconds.items()},
    }
    write_evidence(_NAME, _COMMAND, parts, _OUT)
    (_OUT / f"{_NAME}.md").write_text(_in_words(parts), encoding="utf-8")
    return parts


def test_repeated_peaks_agree(probes: dict[str, Any]) -> None:
    for name, peaks in probes["peaks"]["bytes"].items():
        assert _REPEATS == len(peaks["allocated"]), name
    spreads = probes["peaks"]["allocated_spread_ratio"]
    assert max(spreads.values()) <= 1e-3, spreads


def test_many_probes_in_a_row_leave_nothing(probes: dict[str, Any]) -> None:
    left = probes["leftovers"]
    assert left["before"] == left["after"]
    assert {"fits", "oom_host", "crashed"} >= set(left["outcomes"])
    assert left["probes"] >= _PROBES


def test_a_candidate_is_as_fast_as_itself(probes: dict[str, Any]) -> None:
    # How far it is apart depends on what else the machine does: the evidence says whether the goal
    # was met, and by what spread; here only that every pair was measured.
    for name, row in probes["speed"].items():
        assert len(row["pass_seconds"]) == 2 * _PAIRS, name


def _apart(seconds: list[float]) -> dict[str, Any]:
    apart = [a / b - 1.0 for a, b in zip(seconds[::2], seconds[1::2], strict=True)]
    low, _, high = statistics.quantiles(apart, n=4)
    return {
        "pass_seconds": seconds,
        "median_difference_ratio": statistics.median(apart),
        "median_absolute_difference_ratio": statistics.median(abs(a) for a in apart),
        "quartiles_difference_ratio": (low, high),
        "largest_difference_ratio": max(apart, key=abs),
    }


def _spread(values: list[int]) -> float:
    return (max(values) - min(values)) / min(values)


def _in_words(parts: dict[str, Any]) -> str:
    left, peaks = parts["leftovers"], parts["peaks"]
    lines = [
        "# How far a probe's numbers can be trusted",
        "",
        f"`{_COMMAND}` makes this file, on the demo job; raw numbers are in the JSON beside it. "
        f"It took {parts['seconds'] / 60:.1f} minutes; load average at the end: "
        f"{parts['load_average'][0]:.2f}.",
        "",
        f"| candidate | allocated peak, spread of {_REPEATS} repeats | goal |",
        "|---|---|---|",
    ]
    spreads = peaks["allocated_spread_ratio"].items()
    lines += [f"| {name} | {spread:.4%} | at most 0.1 % |" for name, spread in spreads]
    lines += [
        "",
        f"{left['probes']} probes in a row ({left['outcomes']}), counted before and after in this "
        "process and everything it started:",
        "",
        "| | before | after |",
        "|---|---|---|",
        *[f"| {n} | {left['before'][n]} | {left['after'][n]} |" for n in left["before"]],
        "",
        "The same candidate twice in a row, by difference of the two passes; goal: the median of "
        f"the unsigned difference under {_MOST_APART_RATIO:.0%}.",
        "",
        "| candidate | pairs | median | quartiles | median, unsigned | goal met | largest |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {len(row['pass_seconds']) // 2} | {row['median_difference_ratio']:+.1%} "
        f"| {row['quartiles_difference_ratio'][0]:+.1%} "
        f"to {row['quartiles_difference_ratio'][1]:+.1%} "
        f"| {row['median_absolute_difference_ratio']:.1%} "
        f"| {'yes' if row['median_absolute_difference_ratio'] < _MOST_APART_RATIO else 'NO'} "
        f"| {row['largest_difference_ratio']:+.1%} |"
        for name, row in parts["speed"].items()
    ]
    return "\n".join(lines) + "\n"
