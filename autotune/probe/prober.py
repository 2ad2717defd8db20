"""What measures candidates, as a search sees it: one small interface, real and made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autotune.core.measurement import ProbeReport
from autotune.probe.protocol import GuardSpec, ProbeSpec

#: Called about 20 times a second with the seconds passed.
Tick = Callable[[float], None]


class Prober(Protocol):
    """Measure candidates; the real runner and `autotune.testing` both do."""

    def probe(
        self, spec: ProbeSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Measure one candidate within the deadline."""

    def compare(
        self, spec: GuardSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Run one update of two candidates and say whether they train the same."""
