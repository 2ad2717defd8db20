"""Opens one job of the audit and tries combinations of it in forks of a warm process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.job import ALLOWABLE, DatasetSource, Job
from autotune.knobs.catalog import BY_NAME
from autotune.knobs.facts import Facts
from autotune.knobs.translate import joined, settings
from autotune.probe.prepared import Prepared
from autotune.probe.protocol import PrepareSpec
from autotune.use.planned import facts_of
from tests.audit.forks import Forks
from tests.audit.job import MODELS, ROWS, AuditJob
from tests.audit.trl_run import Attempt, Done, Weights
from tests.support.models import tiny_model

#: A combination that quantises takes a while on two shared cores.
DEADLINE_S = 180.0


@dataclass
class Bench:
    """A job whose combinations can be tried.

    Args:
        facts: job, rows and machine.
        forks: runs them.
        base: what all attempts have in common.
    """

    facts: Facts
    forks: Forks
    base: Attempt
    _seen: dict[str, Done] = field(default_factory=dict)

    def translated(self, candidate: Candidate) -> Done:
        """Return what a candidate does the way autotune writes it."""
        found = settings(candidate, self.facts)
        return self._try(found.options, found.env, found.pretruncate_tokens)

    def as_written(self, candidate: Candidate) -> Done:
        """Return what a combination does with every knob written as it is, nothing straightened."""
        options: dict[str, Any] = {}
        env: dict[str, str] = {}
        for name, choice in candidate.knobs.items():
            knob = BY_NAME[name]
            written = knob.write(choice, self.facts)
            if knob.place == "environment":
                env.update(written)
            else:
                options = joined(options, written, self.facts)
        # what no knob writes follows from the candidate: the accumulation, the scale of adapters
        return self._try({**settings(candidate, self.facts).options, **options}, env, None)

    def _try(self, options: Mapping[str, Any], env: dict[str, str], cut: int | None) -> Done:
        attempt = self.base.model_copy(
            update={
                "options": {**self.facts.job.options, **options},
                "env": env,
                "cut_tokens": cut,
            }
        )
        request = attempt.model_dump_json()
        if request not in self._seen:
            self._seen[request] = self._done(request)
        return self._seen[request]

    def _done(self, request: str) -> Done:
        try:
            answer = self.forks.call("tests.audit.trl_run:run", request, DEADLINE_S)
        except RuntimeError as error:
            return Done(ending="breaks", said=str(error))
        return Done.model_validate_json(answer)


def opened(job: AuditJob, folder: Path, forks: Forks) -> Bench:
    """Write a job's model and rows and have it resolved as autotune resolves it.

    Args:
        job: a row of the table.
        folder: where its files go; emptied first.
        forks: resolves it and runs its attempts.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows_file = folder / "rows.jsonl"
    rows_file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[job.rows]()), "utf-8")
    model_dir = str(tiny_model(folder / "model", **MODELS[job.model]))
    forks.call(
        "tests.audit.trl_run:write_weights",
        Weights(model_dir=model_dir).model_dump_json(),
        DEADLINE_S,
    )
    asked = Job(
        trainer=job.trainer,
        model=model_dir,
        dataset=DatasetSource(path=str(rows_file)),
        options={**job.options},
        min_retention_ratio=0.0,
        allow=frozenset(ALLOWABLE),
    )
    out_dir = folder / "prepared"
    spec = PrepareSpec(job=asked, device="cpu", out_dir=str(out_dir), cache_dir=str(folder))
    answer = forks.call("tests.audit.trl_run:prepare", spec.model_dump_json(), DEADLINE_S)
    prepared = Prepared.model_validate_json(answer)
    facts = facts_of(asked, prepared, out_dir)
    base = Attempt(
        trainer=job.trainer,
        model_dir=model_dir,
        rows_file=str(rows_file),
        prepared_dir=prepared.profile.rows_dir,
        options={},
        streams=facts.streams,
        scales=job.scales,
        folder=str(folder),
    )
    return Bench(facts, forks, base)
