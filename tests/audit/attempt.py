"""Tries combinations for real: TRL's own trainer, two updates, in warm children on the CPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.job import ALLOWABLE, Budget, DatasetSource, Job, Trainer
from autotune.core.measurement import ProbeReport
from autotune.knobs.catalog import knobs_of
from autotune.knobs.facts import Facts
from autotune.knobs.translate import settings
from autotune.probe.launch import Launcher
from autotune.probe.prepared import Prepared
from autotune.probe.protocol import PrepareSpec
from autotune.probe.runner import Runner
from autotune.study.plan import probe_spec
from autotune.use.planned import facts_of
from tests.support.models import tiny_model

#: A combination that compiles or quantises takes a while on two shared cores.
DEADLINE_S = 180.0
#: More than anything tried here needs: the audit is about validity.
MEMORY_BYTES = 8 * 2**30
ROWS = 24


@dataclass
class Bench:
    """A job whose combinations can be tried.

    Args:
        facts: job, rows and machine.
        prepared: the job as the measuring process resolved it.
        runner: runs the probes.
    """

    facts: Facts
    prepared: Prepared
    runner: Runner
    _seen: dict[str, ProbeReport] = field(default_factory=dict)

    def translated(self, candidate: Candidate) -> ProbeReport:
        """Return what a candidate does the way autotune writes it."""
        found = settings(candidate, self.facts)
        return self._probe(candidate, found.options, found.pretruncate_tokens)

    def as_written(self, candidate: Candidate) -> ProbeReport:
        """Return what a combination does with every knob written as it is, nothing straightened."""
        options: dict[str, Any] = {}
        for knob in knobs_of(self.facts.job.trainer):
            if knob.name in candidate.knobs:
                options.update(knob.write(candidate.knobs[knob.name], self.facts))
        options["gradient_accumulation_steps"] = settings(candidate, self.facts).accumulation
        return self._probe(candidate, options, None)

    def _probe(
        self, candidate: Candidate, options: dict[str, Any], pretruncate_tokens: int | None
    ) -> ProbeReport:
        key = json.dumps([options, pretruncate_tokens], sort_keys=True, default=str)
        if key not in self._seen:
            spec = probe_spec(
                candidate,
                settings(candidate, self.facts),
                self.facts,
                self.prepared.model.model_dir,
                self.prepared.profile.rows_dir,
                Budget(total_bytes=MEMORY_BYTES, headroom_ratio=0.0, explicit=True),
            ).model_copy(
                update={
                    "options": {**self.facts.job.options, **options},
                    "pretruncate_tokens": pretruncate_tokens,
                    "cap_bytes": None,
                    "memory_only": True,
                }
            )
            name = f"{self.facts.job.trainer.value}-{len(self._seen):04d}"
            self._seen[key] = self.runner.probe(spec, name=name, deadline_s=DEADLINE_S)
        return self._seen[key]


@contextmanager
def opened(trainer: Trainer, folder: Path, launcher: Launcher, cache: Path) -> Iterator[Bench]:
    """Open a small job of one trainer in which everything is allowed.

    Args:
        trainer: which.
        folder: where its files go; emptied first.
        launcher: starts the probes; closed by whoever opened it.
        cache: folder of prepared rows.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in rows_for(trainer)), "utf-8")
    job = Job(
        trainer=trainer,
        # 4-bit kernels for CPUs take whole blocks of 64 weights.
        model=str(tiny_model(folder / "model", hidden_size=64, intermediate_size=128, head_dim=32)),
        dataset=DatasetSource(path=str(rows)),
        options={"per_device_train_batch_size": 4, "bf16": False},
        min_retention_ratio=0.0,
        allow=frozenset(ALLOWABLE),
    )
    runner = Runner(launcher, folder)
    prepared = runner.prepare(
        PrepareSpec(job=job, device="cpu", out_dir=str(folder / "prepared"), cache_dir=str(cache)),
        deadline_s=600.0,
    )
    yield Bench(facts_of(job, prepared, folder / "prepared"), prepared, runner)


def rows_for(trainer: Trainer) -> list[dict[str, Any]]:
    """Return rows of uneven length in a layout the trainer reads."""
    words = ["one", "two", "three", "four", "five", "six", "seven"]

    def text(count: int, start: int) -> str:
        return " ".join(words[(start + i) % len(words)] for i in range(count))

    if trainer is Trainer.SFT:
        return [{"text": text(4 + 3 * (i % 9), i)} for i in range(ROWS)]
    pairs = [
        (text(3 + i % 4, i), text(4 + 3 * (i % 7), i), text(3 + i % 9, 2 * i)) for i in range(ROWS)
    ]
    if trainer is Trainer.KTO:
        return [
            {"prompt": p, "completion": c if i % 2 else r, "label": bool(i % 2)}
            for i, (p, c, r) in enumerate(pairs)
        ]
    return [{"prompt": p, "chosen": c, "rejected": r} for p, c, r in pairs]
