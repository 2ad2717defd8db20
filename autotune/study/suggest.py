"""What to try next: Optuna's TPE over the knobs, held to candidates that are valid and new.

TPE repeats itself and knows nothing of validity, and a proposal cannot be taken back from a stored
study (DESIGN.md 6). So proposals are made in a throw-away study in memory that mirrors the stored
trials, until one stands for a candidate that is in the list and not yet probed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.core.candidate import Candidate, Value
from autotune.knobs.catalog import user_candidate
from autotune.knobs.facts import Facts
from autotune.knobs.translate import canonical
from autotune.study.told import Told

_DRAWS = 24
#: Trials before TPE models anything; the first candidates of strategy.py are about as many.
_STARTUP_TRIALS = 6


@dataclass(frozen=True)
class Seen:
    """A probed candidate as the sampler sees it.

    Args:
        params: choice of every searched knob, as the study stores it.
        told: its objective and its constraint.
    """

    params: Mapping[str, Value]
    told: Told


def propose(
    choices: Mapping[str, tuple[Value, ...]],
    candidates: Sequence[Candidate],
    seen: Sequence[Seen],
    visited: set[str],
    facts: Facts,
    seed: int,
) -> Candidate | None:
    """Return the next candidate, or None when every one was probed.

    Args:
        choices: the searched knobs and their values.
        candidates: the valid candidates.
        seen: what was measured so far.
        visited: keys of candidates that need not come again.
        facts: job, rows and machine.
        seed: seed of this proposal.
    """
    import optuna

    left = [c for c in candidates if c.key not in visited]
    if not left:
        return None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=_STARTUP_TRIALS, multivariate=True
    )
    study = optuna.create_study(direction="minimize", sampler=sampler)
    space = {n: optuna.distributions.CategoricalDistribution(v) for n, v in choices.items()}
    for one in seen:
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(one.params),
                distributions=space,
                value=one.told.value,
                constraints={"memory": one.told.violation},
            )
        )
    by_key = {c.key: c for c in left}
    # Knobs that are not searched keep the user's choice, as in the enumeration.
    own = user_candidate(facts)
    drawn: list[Candidate] = []
    for _ in range(_DRAWS):
        params = study.ask(space).params
        candidate = canonical(own.with_knobs(**params), facts)
        if candidate.key in by_key:
            return by_key[candidate.key]
        drawn.append(candidate)
    return _nearest(drawn, left, choices, seed)


def _nearest(
    drawn: Sequence[Candidate],
    left: Sequence[Candidate],
    choices: Mapping[str, tuple[Value, ...]],
    seed: int,
) -> Candidate:
    """Return the candidate left that is most like what the sampler wanted."""
    order = np.random.default_rng(seed).permutation(len(left))
    wanted = drawn[-1]

    def distance(candidate: Candidate) -> float:
        return sum(_apart(candidate.get(n), wanted.get(n), values) for n, values in choices.items())

    return min((left[int(i)] for i in order), key=distance)


def _apart(a: Value, b: Value, values: tuple[Value, ...]) -> float:
    """0 when equal; for ordered numbers the share of the range between them, else 1."""
    if a == b:
        return 0.0
    numbers = [v for v in values if type(v) is int]
    if len(numbers) == len(values) and a in values and b in values:
        return abs(values.index(a) - values.index(b)) / max(1, len(values) - 1)
    return 1.0
