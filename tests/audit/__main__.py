"""Runs the whole audit and writes its report: ``python -m tests.audit``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from autotune.core.job import PROBED_TRAINERS, Trainer
from autotune.intake.job import cache_dir
from autotune.probe.warm import WarmServer
from tests.audit.attempt import opened
from tests.audit.audit import audit
from tests.audit.report import rendered
from tests.audit.sample import LEFT_OUT, combinations
from tests.audit.verdict import Tried

REPORT = Path(__file__).resolve().parents[2] / "reports" / "rule-audit.md"


def main() -> int:
    """Try every trainer's sample; return 1 when TRL and the rules disagree anywhere."""
    found: dict[Trainer, list[Tried]] = {}
    wanted = [Trainer(name) for name in sys.argv[1:]] or list(PROBED_TRAINERS)
    with tempfile.TemporaryDirectory(prefix="autotune-audit-") as folder:
        server = WarmServer(Path(folder))
        server.wait_ready()
        for trainer in wanted:
            with opened(trainer, Path(folder) / trainer.value, server, cache_dir()) as bench:
                sample = combinations(bench.facts, LEFT_OUT)
                print(f"{trainer.value}: {len(sample)} combinations", flush=True)
                found[trainer] = audit(bench, sample, _told)
        server.close()
    against = sum(not t.agrees for tried in found.values() for t in tried)
    if wanted == list(PROBED_TRAINERS):
        REPORT.write_text(rendered(found, LEFT_OUT), encoding="utf-8")
        print(f"wrote {REPORT.name}")
    print(f"{against} disagreements")
    return 1 if against else 0


def _told(tried: Tried) -> None:
    mark = "ok " if tried.agrees else "BAD"
    knobs = ", ".join(f"{k}={v}" for k, v in tried.candidate.knobs.items())
    print(f"{mark} {tried.claim} {tried.rule} [{knobs}] {tried.found[:160]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
