"""A measuring process that ended, and what was seen of it; judged in classify.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from autotune.core.errors import EnvironmentUnable
from autotune.core.outcome import Phase
from autotune.probe.cgroup import cgroup_limit
from autotune.probe.observed import Observed
from autotune.probe.protocol import Reply


@dataclass(frozen=True)
class Finished:
    """A process that ended.

    Args:
        code: its exit code; negative is a signal.
        timed_out: whether the deadline ended it, or (where that is infinite) its idleness.
        wall_seconds: how long it ran.
        peak_rss_bytes: highest resident memory seen.
        reply: its answer, None when it left none.
        log_file: its output.
        phase: what it told of doing last; None when it told nothing.
        step: micro-steps it had finished then.
    """

    code: int
    timed_out: bool
    wall_seconds: float
    peak_rss_bytes: int | None
    reply: Reply | None
    log_file: Path
    phase: Phase | None = None
    step: int = 0

    def observed(self, deadline_s: float, device: str) -> Observed:
        """Return what is seen of any process; the caller adds what it alone knows.

        Args:
            deadline_s: the deadline it ran under.
            device: ``cpu`` or ``cuda:i``.
        """
        return Observed(
            failure=self.reply.failure if self.reply else None,
            measurement=self.reply.measurement if self.reply else None,
            code=self.code,
            timed_out=self.timed_out,
            deadline_s=deadline_s,
            peak_rss_bytes=self.peak_rss_bytes,
            host_total_bytes=host_bytes(),
            cap_bytes=None,
            device=device,
            log_tail=self.tail(),
            phase=self.phase,
            step=self.step,
        )

    def require_able(self) -> None:
        """Stop where the process found that this machine or installation cannot do what was asked.

        Raises:
            EnvironmentUnable: in the process's words.
        """
        failure = self.reply.failure if self.reply else None
        if failure is not None and failure.unable:
            raise EnvironmentUnable(failure.message, failure.hint)

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        if not self.log_file.is_file():
            return ""
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def host_bytes() -> int:
    """Return the memory this machine has, or its control group where that allows less."""
    total, limit = int(psutil.virtual_memory().total), cgroup_limit()
    return total if limit is None else min(total, limit)
