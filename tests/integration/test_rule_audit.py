"""The rules claim what TRL does: the whole of SFT, a fixed dozen and a handful of every other job.

`make audit` tries everything there is and writes reports/rule-audit.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.audit.audit import checks
from tests.audit.bench import Bench, opened
from tests.audit.clauses import Clause
from tests.audit.forks import Forks
from tests.audit.job import AuditJob
from tests.audit.jobs import JOBS
from tests.audit.plan import Trials, trials_of
from tests.audit.reach import OUT_OF_REACH, exercised, unexercised

pytestmark = pytest.mark.integration

#: Combinations every change is held against: of the other trainers' whole jobs, of small jobs.
DOZEN, HANDFUL = 12, 4


class Opened:
    """Jobs that are opened once and kept for all tests here."""

    def __init__(self, folder: Path, forks: Forks) -> None:
        self._folder, self._forks = folder, forks
        self._known: dict[str, tuple[Bench, Trials]] = {}

    def get(self, job: AuditJob) -> tuple[Bench, Trials]:
        """Return a job's bench and what is tried of it."""
        if job.name not in self._known:
            folder = self._folder / str(len(self._known))
            bench = opened(job, folder, self._forks)
            self._known[job.name] = bench, trials_of(bench.facts, job.choices(bench.facts))
        return self._known[job.name]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("audit")
    with Forks(folder / "forks") as forks:
        yield Opened(folder, forks)


def share_of(job: AuditJob) -> int | None:
    """Return how many of a job's combinations are tried here; None for all."""
    if job is JOBS[0]:
        return None
    return DOZEN if job.varies is None else HANDFUL


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_trl_does_what_the_rules_say(job: AuditJob, jobs: Opened) -> None:
    bench, trials = jobs.get(job)
    every = list(checks(bench, trials, job.breaks))
    share = share_of(job) or len(every)
    chosen = every[:: max(1, len(every) // share)][:share]
    tried = [(label, check()) for label, check in chosen]
    assert [] == [f"{label}: {found.found}" for label, found in tried if not found.agrees]


def test_what_can_be_covered_is_covered_and_what_is_forbidden_is_shown(jobs: Opened) -> None:
    for job in JOBS:
        _, trials = jobs.get(job)
        assert trials.pairs.held == trials.pairs.covered, job.name
        assert () == trials.unexplained, job.name


def test_every_clause_has_a_row_or_a_reason(jobs: Opened) -> None:
    """A rule or merge that is added without a job that exercises it fails here, by its text."""
    found: set[Clause] = set()
    for job in JOBS:
        bench, trials = jobs.get(job)
        found |= exercised(bench.facts, trials)
    missing = unexercised(found)
    assert [] == [str(clause) for clause in missing if clause.function not in OUT_OF_REACH]
    assert OUT_OF_REACH.keys() == {c.function for c in missing if c.function in OUT_OF_REACH}
