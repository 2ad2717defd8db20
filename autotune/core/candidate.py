"""One assignment of knobs: what a probe measures and a trial proposes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import field_validator

from autotune.core.job import Frozen

Value = str | int | float | bool | None


class Candidate(Frozen):
    """Assign a choice to every knob of the space.

    Args:
        knobs: choice by knob name. Knobs that have no effect under the others are absent.
    """

    knobs: dict[str, Value]

    @field_validator("knobs")
    @classmethod
    def _in_order(cls, knobs: dict[str, Value]) -> dict[str, Value]:
        return dict(sorted(knobs.items()))

    @property
    def key(self) -> str:
        """Twelve hex digits that are equal exactly when the knobs are."""
        text = json.dumps(self.knobs, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def get(self, name: str, default: Value = None) -> Value:
        """Return the choice of one knob, or ``default`` when it is absent."""
        return self.knobs.get(name, default)

    def with_knobs(self, **changes: Value) -> Candidate:
        """Return this candidate with some choices replaced."""
        return Candidate(knobs={**self.knobs, **changes})

    def differences(self, other: Candidate) -> Mapping[str, tuple[Any, Any]]:
        """Return (mine, theirs) for every knob on which the two differ."""
        names = sorted({*self.knobs, *other.knobs})
        return {n: (self.get(n), other.get(n)) for n in names if self.get(n) != other.get(n)}
