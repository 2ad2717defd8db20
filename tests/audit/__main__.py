"""Runs the whole audit and writes its report: ``python -m tests.audit [JOB ...]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.audit.audit import checks
from tests.audit.bench import opened
from tests.audit.clauses import Clause
from tests.audit.forks import Forks
from tests.audit.jobs import JOBS
from tests.audit.plan import trials_of
from tests.audit.reach import OUT_OF_REACH, exercised, unexercised
from tests.audit.report import Audited, rendered
from tests.audit.verdict import Tried

REPORT = Path(__file__).resolve().parents[2] / "reports" / "rule-audit.md"


def main() -> int:
    """Try every job, or those named; return 1 when TRL and the rules disagree anywhere."""
    wanted = [job for job in JOBS if job.name in sys.argv[1:] or not sys.argv[1:]]
    audited: list[Audited] = []
    reached: set[Clause] = set()
    with (
        tempfile.TemporaryDirectory(prefix="autotune-audit-") as folder,
        Forks(Path(folder) / "forks") as forks,
    ):
        for job in wanted:
            bench = opened(job, Path(folder) / "job", forks)
            trials = trials_of(bench.facts, job.choices(bench.facts))
            reached |= exercised(bench.facts, trials)
            print(f"# {job.name}: {trials.pairs} {trials.unexplained}", flush=True)
            tried = []
            for label, check in checks(bench, trials, job.breaks):
                tried.append(check())
                _say(label, tried[-1])
            audited.append(Audited(job, trials.pairs, tried))
    missing = unexercised(reached)
    against = sum(not t.agrees for found in audited for t in found.tried)
    if len(wanted) == len(JOBS):
        REPORT.write_text(rendered(audited, missing), encoding="utf-8")
        print(f"wrote {REPORT.name}")
        for clause in missing:
            if clause.function not in OUT_OF_REACH:
                against += 1
                print(f"nothing exercises {clause}")
    print(f"{against} disagreements")
    return 1 if against else 0


def _say(label: str, tried: Tried) -> None:
    mark = "ok " if tried.agrees else "BAD"
    print(f"{mark} {label} {tried.rule}: {tried.found[:200]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
