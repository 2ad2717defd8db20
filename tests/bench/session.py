"""Opens a job up to its first probe, for benches that measure candidates of their own choice."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune import demo
from autotune.core.candidate import Candidate
from autotune.core.job import Budget
from autotune.core.measurement import ProbeReport
from autotune.core.result import Estimate
from autotune.intake.cache import cache_dir
from autotune.intake.job import build_job
from autotune.intake.request import Request
from autotune.knobs.facts import Facts
from autotune.knobs.translate import settings
from autotune.probe.prepared import Prepared
from autotune.probe.protocol import PrepareSpec, ProbeSpec
from autotune.probe.runner import Runner
from autotune.probe.warm import WarmServer
from autotune.spaces.enumerate import Enumerated, enumerate_space
from autotune.spaces.load import find_space, read_space
from autotune.study.objective import estimate
from autotune.study.plan import probe_spec
from autotune.use.planned import facts_of

REPORTS = Path(__file__).resolve().parents[2] / "reports"


@dataclass(frozen=True)
class Session:
    """A job that is ready to be probed."""

    facts: Facts
    prepared: Prepared
    space: Enumerated
    runner: Runner
    budget: Budget

    def probe(self, candidate: Candidate, **changes: Any) -> ProbeReport:
        """Probe one candidate without its timing; ``changes`` replace fields of the request."""
        spec = self._spec(candidate).model_copy(update={"memory_only": True, **changes})
        return self.runner.probe(spec, name="bench", deadline_s=300.0)

    def measure(
        self, candidate: Candidate, *, capped: bool = True
    ) -> tuple[ProbeReport, Estimate | None]:
        """Probe one candidate and estimate its pass."""
        spec = self._spec(candidate)
        if not capped:
            spec = spec.model_copy(update={"cap_bytes": None})
        report = self.runner.probe(spec, name="bench", deadline_s=300.0)
        if report.measurement is None:
            return report, None
        translated = settings(candidate, self.facts)
        return report, estimate(candidate, translated, report.measurement, self.facts)

    def _spec(self, candidate: Candidate) -> ProbeSpec:
        return probe_spec(
            candidate,
            settings(candidate, self.facts),
            self.facts,
            self.prepared.model.model_dir,
            self.prepared.profile.rows_dir,
            self.budget,
        )


@contextmanager
def demo_session(
    folder: Path, memory_bytes: int = demo.MEMORY_BYTES, env: dict[str, str] | None = None
) -> Iterator[Session]:
    """Open the embedded demo job; its processes have ``folder/tmp`` for temporary files.

    Args:
        folder: theirs.
        memory_bytes: the budget.
        env: variables its processes are given beside the user's own.
    """
    job, origin = build_job(Request())
    for name in ("logs", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    server = WarmServer(folder / "logs", {"TMPDIR": str(folder / "tmp"), **(env or {})})
    with Runner(server, folder) as runner:
        server.wait_ready()
        prepared = runner.prepare(
            PrepareSpec(
                job=job,
                device="cpu",
                out_dir=str(folder / "prepared"),
                cache_dir=str(cache_dir()),
                demo_model=origin.demo_model,
            ),
            deadline_s=600.0,
        )
        server.preload(prepared.model.model_type)
        facts = facts_of(job, prepared, folder / "prepared")
        yield Session(
            facts=facts,
            prepared=prepared,
            space=enumerate_space(read_space(find_space("sft")), facts, {}),
            runner=runner,
            budget=Budget(total_bytes=memory_bytes, headroom_ratio=0.05, explicit=True),
        )


def write_evidence(name: str, command: str, body: dict[str, Any], folder: Path = REPORTS) -> Path:
    """Write an evidence file with the command that makes it and the versions it was made with."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    document = {
        "command": command,
        "python": sys.version.split()[0],
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "what measuring processes are given"),
        "machine": f"{platform.machine()}, 2 shared cores",
        "versions": {n: version(n) for n in ("torch", "transformers", "trl", "optuna")},
        **body,
    }
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return file
