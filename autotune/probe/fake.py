"""Measures without hardware: a machine made of numbers, for tests and for trying a search out.

`FakeProber` forms the micro-batches the measuring child would form from the same request and the
same lengths, asks a `FakeMachine` what they cost, and answers with a complete report. A cap that is
exceeded becomes the exception a device would raise, and every ending is decided by the real
`classify`. Nothing here sleeps, starts a process or measures anything.
"""

from __future__ import annotations

from dataclasses import replace

from autotune.core.lengths import Lengths
from autotune.core.measurement import ProbeReport
from autotune.probe.classify import classify
from autotune.probe.fake_machine import FakeMachine
from autotune.probe.fake_script import Interrupts, Script
from autotune.probe.fake_session import FakeSession
from autotune.probe.protocol import ProbeSpec
from autotune.probe.runner import Tick


class FakeProber:
    """Answer requests from a machine made of numbers; keeps what it was asked."""

    def __init__(
        self,
        machine: FakeMachine,
        lengths: Lengths,
        script: Script | None = None,
        *,
        started: int = 0,
    ) -> None:
        """Take the machine, the rows' lengths and what befalls which probe.

        Args:
            machine: what micro-batches cost.
            lengths: the prepared rows, uncut.
            script: what befalls which probe; None is a quiet machine.
            started: probes counted before the first one, for a resumed search.
        """
        self._machine = machine
        self._lengths = lengths
        self._script = script or (lambda _, __: None)
        self._started = started
        self.asked: list[ProbeSpec] = []

    def probe(
        self, spec: ProbeSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Answer one request.

        Args:
            spec: what to measure.
            name: name of the log the report points to.
            deadline_s: seconds the made-up times may add up to.
            tick: called once, with no time passed.

        Raises:
            KeyboardInterrupt: the script says that the user interrupts.
        """
        happening = self._script(self._started + len(self.asked), spec)
        self.asked.append(spec)
        if tick is not None:
            tick(0.0)
        if isinstance(happening, Interrupts):
            raise KeyboardInterrupt
        seen, wall = FakeSession(self._machine, self._lengths, spec, happening, name).observe()
        if wall > deadline_s:
            seen = replace(seen, failure=None, measurement=None, timed_out=True)
        seen = replace(seen, deadline_s=deadline_s)
        ending, needed = classify(seen)
        return ProbeReport(
            ending=ending,
            measurement=seen.measurement,
            wall_seconds=min(wall, deadline_s),
            peak_rss_bytes=seen.peak_rss_bytes,
            log_file=f"logs/{name}.txt",
            needed_bytes=needed,
        )
