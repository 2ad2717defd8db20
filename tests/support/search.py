"""Whole searches on a made-up machine, for tests: facts and a script in, a finished search out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.result import TrialRecord
from autotune.knobs.facts import Facts
from autotune.spaces.enumerate import Enumerated, enumerate_space
from autotune.spaces.schema import Space
from autotune.study.limits import Limits
from autotune.study.search import Search
from autotune.study.storage import IN_MEMORY, Store
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_prober import FakeProber
from autotune.testing.fake_script import GuardScript, Script
from tests.support.facts import GIB, budget_of


class Witness:
    """Remember what a search told its observer."""

    def __init__(self) -> None:
        self.roles: list[str] = []
        self.finished_numbers: list[int] = []

    def started(self, candidate: Candidate, role: str) -> None:
        self.roles.append(role)

    def tick(self, seconds: float) -> None:
        return

    def finished(self, record: TrialRecord) -> None:
        self.finished_numbers.append(record.number)


def space_of(**knobs: Any) -> Space:
    """Return a space with these knobs."""
    document = {"schema_version": 1, "name": "x", "trainer": "sft", "describe": "x"}
    return Space.model_validate({**document, "knobs": knobs})


#: A few dozen candidates on skewed rows.
SMALL_SPACE = space_of(
    per_device_train_batch_size=[1, 2, 4, 8],
    padding_free=[False, True],
    gradient_checkpointing=["none", "full", "selective"],
)


def search_of(
    out_dir: Path,
    facts: Facts,
    *,
    space: Space = SMALL_SPACE,
    machine: FakeMachine | None = None,
    script: Script | None = None,
    memory_bytes: int = 12 * GIB,
    trials: int = 8,
    storage: str | None = IN_MEMORY,
    started: int = 0,
    guards: GuardScript | None = None,
    timeout_s: float | None = None,
) -> Search:
    """Return a search that is ready to run.

    Args:
        out_dir: the run's folder.
        facts: job, rows and machine.
        space: what to try.
        machine: what micro-batches cost.
        script: what befalls which probe.
        memory_bytes: the budget.
        trials: probes of the search.
        storage: Optuna's storage; None keeps a file, for searches that are resumed.
        started: probes counted before, for a resumed search.
        guards: what befalls which comparison with the reference.
        timeout_s: longest search.
    """
    found: Enumerated = enumerate_space(space, facts, {})
    return Search(
        facts=facts,
        space=found,
        model_dir="model",
        rows_dir="rows",
        budget=budget_of(memory_bytes),
        prober=FakeProber(
            machine or FakeMachine(), facts.lengths, script, started=started, guards=guards
        ),
        store=Store(out_dir, storage, {"space": "x"}),
        limits=Limits(trials=trials, search_s=timeout_s, probe_s=120.0),
        observer=Witness(),
    )
