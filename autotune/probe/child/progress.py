"""How far a measuring process has come, told to whoever must know it should the process die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.outcome import Phase


@dataclass
class Progress:
    """What is being done, and how much is done.

    Args:
        tell: hears of every change of phase, and of the micro-steps finished before it.
        step: micro-steps finished so far.
    """

    tell: Callable[[Phase, int], None] = lambda phase, step: None
    step: int = 0
    _phase: Phase = Phase.LOAD

    @property
    def phase(self) -> Phase:
        """What is being done."""
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        self.tell(phase, self.step)
