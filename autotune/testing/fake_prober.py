"""Measures without hardware: a machine made of numbers, for tests and for trying a search out.

`FakeProber` forms the micro-batches the measuring child would form from the same request and the
same lengths, asks a `FakeMachine` what they cost, and answers with a complete report. A cap that is
exceeded becomes the exception a device would raise, and every ending is decided by the real
`classify`. Nothing here sleeps, starts a process or measures anything.
"""

from __future__ import annotations

import math
from dataclasses import replace

from autotune.core.equivalence import Compared, Update
from autotune.core.lengths import Lengths
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Phase
from autotune.probe.classify import classify
from autotune.probe.equivalence import judge
from autotune.probe.observed import IDLE_S, Observed
from autotune.probe.prober import Tick
from autotune.probe.protocol import GuardSide, GuardSpec, ProbeSpec
from autotune.testing.fake_machine import FakeMachine
from autotune.testing.fake_script import (
    Differs,
    GuardScript,
    Hangs,
    Interrupts,
    Raises,
    Script,
)
from autotune.testing.fake_session import FakeSession


class FakeProber:
    """Answer requests from a machine made of numbers; keeps what it was asked."""

    def __init__(
        self,
        machine: FakeMachine,
        lengths: Lengths,
        script: Script | None = None,
        *,
        started: int = 0,
        guards: GuardScript | None = None,
    ) -> None:
        """Take the machine, the rows' lengths and what befalls which probe.

        Args:
            machine: what micro-batches cost.
            lengths: the prepared rows, uncut.
            script: what befalls which probe; None is a quiet machine.
            started: probes counted before the first one, for a resumed search.
            guards: what befalls which comparison; None has every two candidates train the same.
        """
        self._machine = machine
        self._lengths = lengths
        self._script = script or (lambda _, __: None)
        self._started = started
        self._guards = guards or (lambda _, __: None)
        self.asked: list[ProbeSpec] = []
        self.compared: list[GuardSpec] = []

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
            phase = Phase.STEADY if deadline_s > self._machine.load_s else Phase.LOAD
            hangs = isinstance(happening, Hangs)
            seen = replace(
                seen,
                failure=None,
                measurement=None,
                timed_out=True,
                phase=Phase.LOAD if hangs else phase,
            )
        seen = replace(seen, deadline_s=deadline_s)
        ending, needed = classify(seen)
        return ProbeReport(
            ending=ending,
            measurement=seen.measurement,
            wall_seconds=IDLE_S if math.isinf(min(wall, deadline_s)) else min(wall, deadline_s),
            peak_rss_bytes=seen.peak_rss_bytes,
            log_file=f"logs/{name}.txt",
            needed_bytes=needed,
        )

    def compare(
        self, spec: GuardSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Answer one comparison: equal numbers, unless the script says otherwise.

        Args:
            spec: the two candidates and their rows.
            name: name of the log the report points to.
            deadline_s: seconds after which a comparison that hangs is ended.
            tick: called once, with no time passed.

        Raises:
            KeyboardInterrupt: the script says that the user interrupts.
        """
        happening = self._guards(len(self.compared), spec)
        self.compared.append(spec)
        if tick is not None:
            tick(0.0)
        if isinstance(happening, Interrupts):
            raise KeyboardInterrupt
        log_file = f"logs/{name}.txt"
        if isinstance(happening, Hangs | Raises):
            seen = Observed(
                failure=happening.failure() if isinstance(happening, Raises) else None,
                measurement=None,
                code=1,
                timed_out=isinstance(happening, Hangs),
                deadline_s=deadline_s,
                peak_rss_bytes=None,
                host_total_bytes=self._machine.total_bytes,
                cap_bytes=None,
                device=spec.device,
            )
            return ProbeReport(ending=classify(seen)[0], wall_seconds=deadline_s, log_file=log_file)
        more = happening.loss_ratio if isinstance(happening, Differs) else 0.0
        compared = Compared(
            reference=self._update(spec, spec.reference, 0.0),
            candidate=self._update(spec, spec.candidate, more),
            weights=spec.weights,
        )
        return ProbeReport(
            ending=judge(compared),
            compared=compared,
            wall_seconds=2 * self._machine.load_s,
            log_file=log_file,
        )

    def _update(self, spec: GuardSpec, side: GuardSide, more_ratio: float) -> Update:
        batch = int(side.options.get("per_device_train_batch_size", 8))
        packed = bool(side.options.get("packing", False))
        return Update(
            micro_steps=1 if packed else -(-len(spec.rows) // batch),
            label_tokens=int(self._lengths.labels[list(spec.rows)].sum()),
            loss=7.5 * (1.0 + more_ratio),
            grad_norm=0.5,
            precision="fp32",
        )
