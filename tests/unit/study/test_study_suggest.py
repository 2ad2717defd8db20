"""What the sampler proposes: valid, new, and better than chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from autotune.core.candidate import Candidate, Value
from autotune.knobs.facts import Facts
from autotune.knobs.translate import settings
from autotune.spaces.enumerate import Enumerated, enumerate_space
from autotune.study.objective import estimate
from autotune.study.plan import probe_spec
from autotune.study.suggest import Seen, propose
from autotune.study.told import Told
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_prober import FakeProber
from tests.support.facts import GIB, GPU, MIB, budget_of, facts_of
from tests.support.search import space_of


@dataclass(frozen=True)
class Landscape:
    """Every candidate of a space with its true score; None where it does not fit."""

    facts: Facts
    space: Enumerated
    scores: Mapping[str, float | None]

    @property
    def best(self) -> float:
        return min(s for s in self.scores.values() if s is not None)

    def params(self, candidate: Candidate) -> dict[str, Value]:
        return {
            name: candidate.get(name) if candidate.get(name) in values else values[0]
            for name, values in self.space.choices.items()
        }

    def seen(self, candidate: Candidate, before: list[Seen]) -> Seen:
        score = self.scores[candidate.key]
        best = min((s.told.value for s in before), default=0.0)
        known = Told(best, 0.5) if score is None else Told(score, -0.1)
        return Seen(self.params(candidate), known)

    def probes_until(self, within: float, seed: int) -> int:
        """Return the probes until a candidate within this share of the best was found."""
        seen: list[Seen] = []
        visited: set[str] = set()
        while True:
            candidate = self.propose(seen, visited, seed * 1000 + len(seen))
            assert candidate is not None
            visited.add(candidate.key)
            seen.append(self.seen(candidate, seen))
            score = self.scores[candidate.key]
            if score is not None and score <= self.best * (1.0 + within):
                return len(seen)

    def propose(self, seen: list[Seen], visited: set[str], seed: int) -> Candidate | None:
        space = self.space
        return propose(space.choices, space.candidates, seen, visited, self.facts, seed)


@pytest.fixture(scope="module")
def landscape() -> Landscape:
    options = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
    facts = facts_of(device=GPU, options=options)
    space = enumerate_space(
        space_of(
            per_device_train_batch_size=[1, 2, 4, 8, 16, 32],
            max_length=[512, 640, 768, 896, 1024],
            packing=["none", "bfd", "bfd_split"],
            padding_free=[False, True],
            gradient_checkpointing=["none", "full", "selective"],
        ),
        facts,
        {},
    )
    machine = FakeMachine(token_bytes=1.2 * MIB, step_s=0.02, token_width_s=1e-8)
    prober, budget = FakeProber(machine, facts.lengths), budget_of(12 * GIB)
    scores: dict[str, float | None] = {}
    for candidate in space.candidates:
        made = settings(candidate, facts)
        spec = probe_spec(candidate, made, facts, "model", "rows", budget)
        measured = prober.probe(spec, name="x", deadline_s=1e9).measurement
        found = None if measured is None else estimate(candidate, made, measured, facts)
        scores[candidate.key] = None if found is None else found.score_seconds
    return Landscape(facts, space, scores)


def test_the_landscape_is_worth_searching(landscape: Landscape) -> None:
    fitting = [s for s in landscape.scores.values() if s is not None]
    assert 130 <= len(landscape.scores) <= 220
    assert len(fitting) < len(landscape.scores), "the budget binds"
    assert max(fitting) > 2.0 * landscape.best
    winner = next(
        c for c in landscape.space.candidates if landscape.scores[c.key] == landscape.best
    )
    assert winner.get("per_device_train_batch_size") not in (1, 32)


def test_the_best_is_found_in_clearly_fewer_probes_than_by_chance(landscape: Landscape) -> None:
    within = 0.01
    good = [s for s in landscape.scores.values() if s and s <= landscape.best * (1.0 + within)]
    # Drawing without putting back, the first of k good ones comes after (n + 1) / (k + 1) draws.
    by_chance = (len(landscape.scores) + 1) / (len(good) + 1)
    probes = [landscape.probes_until(within, seed) for seed in range(4)]
    assert np.mean(probes) < 0.6 * by_chance, (probes, by_chance)


def test_proposals_are_valid_new_and_exhaust_a_space_exactly(landscape: Landscape) -> None:
    few = Landscape(
        landscape.facts,
        Enumerated(landscape.space.choices, landscape.space.candidates[:12], (), 0),
        landscape.scores,
    )
    seen: list[Seen] = []
    visited: set[str] = set()
    while (candidate := few.propose(seen, visited, len(seen))) is not None:
        assert candidate in few.space.candidates
        assert candidate.key not in visited
        visited.add(candidate.key)
        seen.append(few.seen(candidate, seen))
    assert visited == {c.key for c in few.space.candidates}


def test_a_proposal_depends_on_what_was_seen_and_the_seed_alone(landscape: Landscape) -> None:
    seen: list[Seen] = []
    for candidate in landscape.space.candidates[:8]:
        seen.append(landscape.seen(candidate, seen))
    visited = {c.key for c in landscape.space.candidates[:8]}
    assert landscape.propose(seen, visited, 5) == landscape.propose(seen, visited, 5)
    drawn = {c.key for s in range(6) if (c := landscape.propose(seen, visited, s)) is not None}
    assert len(drawn) > 1


def test_a_space_without_every_knob_gets_the_samplers_own_proposals() -> None:
    # Knobs the space leaves out are absent of packed candidates and present in others: a proposal
    # made from the wrong ones would never be in the list.
    facts = facts_of([100] * 80, device=GPU, options={"per_device_train_batch_size": 8})
    space = enumerate_space(
        space_of(
            per_device_train_batch_size=[1, 8], max_length=[100, 400, 800], packing=["none", "bfd"]
        ),
        facts,
        {},
    )
    assert {True, False} == {"pad_to_multiple_of" in c.knobs for c in space.candidates}
    plain = [c for c in space.candidates if c.get("packing") == "none"]
    assert plain
    visited = {c.key for c in space.candidates if c not in plain}
    found = propose(space.choices, space.candidates, [], visited, facts, 0)
    assert found in plain
