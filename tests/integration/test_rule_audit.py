"""The rules claim what TRL does: SFT's whole sample and a fixed dozen of every other trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.core.job import PROBED_TRAINERS, Trainer
from tests.audit.attempt import opened
from tests.audit.audit import audit
from tests.audit.sample import LEFT_OUT, combinations
from tests.support.warm import Shared

pytestmark = pytest.mark.integration

#: Combinations of a trainer other than SFT that every change is held against.
DOZEN = 12


@pytest.mark.parametrize("trainer", PROBED_TRAINERS, ids=lambda t: t.value)
def test_trl_does_what_the_rules_say(trainer: Trainer, shared: Shared, tmp_path: Path) -> None:
    with opened(trainer, tmp_path / "job", shared, tmp_path / "cache") as bench:
        sample = combinations(bench.facts, LEFT_OUT)
        if trainer is not Trainer.SFT:
            sample = sample[:: max(1, len(sample) // DOZEN)][:DOZEN]
        tried = audit(bench, sample, lambda _: None)
    against = [f"{t.claim} {t.rule} {t.candidate.knobs}: {t.found}" for t in tried if not t.agrees]
    assert [] == against
