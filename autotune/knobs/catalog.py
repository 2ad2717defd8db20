"""The knob table: what each knob is, where TRL takes it, what its choices mean.

One row per knob, in the files this one joins. A new knob is one row there, its rules in rules.py
and a test. Says nothing of what to try (search_spaces/) or of what is valid together (rules.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.candidate import Candidate
from autotune.core.errors import BadInput, nearest
from autotune.core.job import Trainer
from autotune.knobs.facts import Facts
from autotune.knobs.knob import Knob
from autotune.knobs.table_memory import ROWS_OF_MEMORY
from autotune.knobs.table_model import ROWS_OF_MODEL
from autotune.knobs.table_rows import ROWS_OF_DATA

KNOBS: tuple[Knob, ...] = (*ROWS_OF_DATA, *ROWS_OF_MEMORY, *ROWS_OF_MODEL)

BY_NAME: Mapping[str, Knob] = {k.name: k for k in KNOBS}


def knob(name: str) -> Knob:
    """Return a knob by its name.

    Raises:
        BadInput: there is no such knob; names the nearest.
    """
    if name not in BY_NAME:
        raise BadInput(
            f"unknown knob {name!r}{nearest(name, sorted(BY_NAME))}.",
            f"Knobs are {', '.join(BY_NAME)}.",
        )
    return BY_NAME[name]


def knobs_of(trainer: Trainer) -> tuple[Knob, ...]:
    """Return the knobs a trainer has, in table order."""
    return tuple(k for k in KNOBS if trainer in k.trainers)


def user_candidate(facts: Facts) -> Candidate:
    """Return the candidate that stands for the user's own config."""
    return Candidate(knobs={k.name: k.read(facts) for k in knobs_of(facts.job.trainer)})
