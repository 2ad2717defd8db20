"""The process peak of one config on the CPU repeats, and so does the least cap it fits under.

Run with ``make bench-peaks`` (a few minutes; a busy machine makes it longer, not another); writes
reports/process-peaks.{json,md}. For contrast the same is measured with glibc's heap as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from autotune.core.candidate import Candidate
from autotune.core.outcome import Outcome
from autotune.core.units import show_bytes
from tests.bench.bench_repeat import candidates
from tests.bench.session import REPORTS, Session, demo_session, write_evidence

pytestmark = pytest.mark.bench
_COMMAND = "make bench-peaks"
_NAME = "process-peaks"
_MOST_APART_RATIO = 0.03
#: A name glibc does not know: its heap stays as it is, and `autotune.probe.meters.heap` keeps off.
_AS_IT_IS = {"GLIBC_TUNABLES": "glibc.malloc.mmap_as_it_is=1"}
_HEAPS: dict[str, tuple[dict[str, str], int]] = {"settled": ({}, 5), "as it is": (_AS_IT_IS, 3)}
#: The least cap is looked for between these shares of the allocated peak, to this share of it.
_LEAST, _MOST, _STEP = 0.9, 1.9, 0.01
_SEARCHES = 3


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Measure everything once and write the evidence."""
    heaps: dict[str, Any] = {}
    for heap, (env, repeats) in _HEAPS.items():
        folder = tmp_path_factory.mktemp(heap.replace(" ", "-"))
        with demo_session(folder, env=env) as session:
            heaps[heap] = _measured(session, repeats)
    parts = {"load_average": os.getloadavg(), "heaps": heaps}
    write_evidence(_NAME, _COMMAND, parts)
    (REPORTS / f"{_NAME}.md").write_text(_in_words(parts), encoding="utf-8")
    yield parts


def test_the_process_peak_repeats(found: dict[str, Any]) -> None:
    for name, row in found["heaps"]["settled"]["peaks"].items():
        assert _spread(row["process"]) <= _MOST_APART_RATIO, name
        assert 1 == len(set(row["allocated"])), name


def test_the_least_cap_repeats(found: dict[str, Any]) -> None:
    assert _spread(found["heaps"]["settled"]["least_cap_bytes"]) <= _MOST_APART_RATIO


def _measured(session: Session, repeats: int) -> dict[str, Any]:
    few = candidates(session)
    peaks: dict[str, dict[str, list[int]]] = {n: {"allocated": [], "process": []} for n in few}
    for name in [name for _ in range(repeats) for name in few]:
        measured = session.probe(few[name], cap_bytes=None).measurement
        assert measured is not None, name
        for kind, values in peaks[name].items():
            values.append(getattr(measured.peaks, f"{kind}_bytes"))
    name, candidate = list(few.items())[-1]
    allocated = peaks[name]["allocated"][0]
    caps = [_least_cap(session, candidate, allocated) for _ in range(_SEARCHES)]
    return {"peaks": peaks, "capped": name, "least_cap_bytes": caps}


def _least_cap(session: Session, candidate: Candidate, allocated: int) -> int:
    """Return the least cap a candidate fits under, in steps of a hundredth of what it allocates."""
    low, high = round(_LEAST / _STEP), round(_MOST / _STEP)
    while high - low > 1:
        middle = (low + high) // 2
        cap = int(middle * _STEP * allocated)
        fits = session.probe(candidate, cap_bytes=cap).ending.outcome is Outcome.FITS
        low, high = (low, middle) if fits else (middle, high)
    return int(high * _STEP * allocated)


def _spread(values: list[int]) -> float:
    return (max(values) - min(values)) / min(values)


def _range(values: list[int]) -> str:
    least, most = show_bytes(min(values)), show_bytes(max(values))
    return f"{least} to {most} ({_spread(values):.1%})"


def _in_words(parts: dict[str, Any]) -> str:
    settled, as_it_is = parts["heaps"]["settled"], parts["heaps"]["as it is"]
    lines = [
        "# Does the memory of a CPU process repeat?",
        "",
        f"`{_COMMAND}` makes this file, on the demo job; raw numbers are in the JSON beside it. "
        f"Load average at the end: {parts['load_average'][0]:.2f}; goal: "
        f"{_MOST_APART_RATIO:.0%} at most.",
        "",
        "glibc gives large blocks pages of their own until it has seen one freed; after that, "
        "blocks up to that size share its heap, where freed ones stay and fragments grow by "
        "chance. A measuring process keeps the first behaviour while memory is measured "
        "(`autotune/probe/meters/heap.py`), and returns to the second where time is taken.",
        "",
        f"| candidate | allocated | process, {_HEAPS['settled'][1]} repeats | "
        f"process with glibc's heap as it is, {_HEAPS['as it is'][1]} repeats |",
        "|---|---|---|---|",
    ]
    for name, row in settled["peaks"].items():
        lines.append(
            f"| {name} | {show_bytes(row['allocated'][0])} | {_range(row['process'])} "
            f"| {_range(as_it_is['peaks'][name]['process'])} |"
        )
    lines += [
        "",
        f"The least cap under which {settled['capped']} fits, looked for {_SEARCHES} times in "
        f"steps of {_STEP:.0%} of what it allocates: {_range(settled['least_cap_bytes'])}; with "
        f"glibc's heap as it is: {_range(as_it_is['least_cap_bytes'])}.",
        "",
        "A process that trains for long holds what the right-hand column says, or more: the cap "
        "and the process peak leave out what glibc keeps of freed memory.",
    ]
    return "\n".join(lines) + "\n"
