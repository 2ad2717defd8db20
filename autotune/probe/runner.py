"""Runs one request in a process of its own and returns what became of it.

Writes the request, enforces the deadline, ends the whole tree, reads the reply. Holds no policy:
what an ending means is decided in classify.py.
"""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from autotune.core.environment import Device
from autotune.core.errors import BadInput, ToolFailure
from autotune.core.measurement import ProbeReport
from autotune.core.secrets import hide_text
from autotune.knobs.table_memory import checkpointing_of
from autotune.probe.baseline import Baseline, Start
from autotune.probe.classify import classify
from autotune.probe.documents import LOG_FILE, REPLY_FILE, REQUEST_FILE, read_reply, write_document
from autotune.probe.equivalence import judge
from autotune.probe.finished import Finished
from autotune.probe.launcher import Launched, Launcher
from autotune.probe.meters.driver import Driver
from autotune.probe.meters.nvml import NvmlDriver
from autotune.probe.observed import IDLE_S
from autotune.probe.phase_file import read_phase
from autotune.probe.prepared import Prepared
from autotune.probe.prober import Tick
from autotune.probe.process_tree import Idleness, end_tree, rss_bytes, signal_group
from autotune.probe.progress import and_progress
from autotune.probe.protocol import (
    ConstructSpec,
    GuardSpec,
    InspectSpec,
    PrepareSpec,
    ProbeSpec,
    Reply,
    Request,
    Trace,
    TraceSpec,
)

_POLL_SECONDS = 0.05


class Runner:
    """Run requests one after the other, each in its own process and folder."""

    def __init__(
        self,
        launcher: Launcher,
        work_dir: Path,
        *,
        keep: bool = False,
        driver: Driver | None = None,
    ) -> None:
        """Take a way of starting processes and a folder for theirs.

        Args:
            launcher: warm or cold.
            work_dir: parent of the probes' folders; logs stay in ``work_dir/logs``.
            keep: keep every probe's folder.
            driver: asked what others hold of a GPU before every probe; None is NVML.
        """
        self._launcher = launcher
        self._work_dir = work_dir
        self._log_dir = work_dir / "logs"
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._driver = driver or NvmlDriver()
        self._baseline: Baseline | None = None

    def __enter__(self) -> Self:
        """Return the runner; leaving the block ends its processes."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything that still runs."""
        self._launcher.close()
        if not self._keep:
            shutil.rmtree(self._work_dir / "probes", ignore_errors=True)

    def probe(
        self, spec: ProbeSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Measure one candidate.

        Args:
            spec: what to measure.
            name: name of its folder and log.
            deadline_s: seconds after which the process tree is ended.
            tick: called about 20 times a second with the seconds passed.

        Raises:
            EnvironmentUnable: no candidate could be measured, for a reason outside them all.
        """
        start = Start() if self._baseline is None else self._baseline.start(spec.cap_bytes)
        done = self.run(Request(spec=spec), name=name, deadline_s=deadline_s, tick=tick)
        done.require_able()
        reply = done.reply
        observed = replace(
            done.observed(deadline_s, spec.device),
            cap_bytes=spec.cap_bytes,
            device_total_bytes=spec.device_total_bytes,
            device_free_bytes=start.free_bytes,
            budget_bytes=spec.budget_bytes,
            surplus_bytes=start.surplus_bytes,
            checkpointing=checkpointing_of(spec.options),
        )
        ending, needed = classify(observed)
        return ProbeReport(
            ending=ending,
            measurement=reply.measurement if reply else None,
            wall_seconds=done.wall_seconds,
            peak_rss_bytes=done.peak_rss_bytes,
            log_file=str(done.log_file),
            needed_bytes=needed,
        )

    def compare(
        self, spec: GuardSpec, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> ProbeReport:
        """Run one update of two candidates and say whether they train the same.

        Args:
            spec: the two and their rows.
            name: name of its folder and log.
            deadline_s: seconds after which the process tree is ended.
            tick: called about 20 times a second with the seconds passed.

        Returns:
            A report whose outcome is ``fits`` when they do, and ``invalid`` with ``compared`` when
            they do not; every other ending says nothing about the candidate.

        Raises:
            EnvironmentUnable: nothing could be compared, for a reason outside the candidates.
        """
        done = self.run(Request(spec=spec), name=name, deadline_s=deadline_s, tick=tick)
        done.require_able()
        compared = done.reply.compared if done.reply else None
        seen = done.observed(deadline_s, spec.device)
        return ProbeReport(
            ending=classify(seen)[0] if compared is None else judge(compared),
            compared=compared,
            wall_seconds=done.wall_seconds,
            peak_rss_bytes=done.peak_rss_bytes,
            log_file=str(done.log_file),
        )

    def prepare(
        self, spec: PrepareSpec, *, deadline_s: float, tick: Tick | None = None
    ) -> Prepared:
        """Resolve a job and prepare its rows.

        Raises:
            BadInput: the job's input cannot be used.
            EnvironmentUnable: this machine cannot do it.
            ToolFailure: the process failed otherwise.
        """
        done = self.run(Request(spec=spec), name="prepare", deadline_s=deadline_s, tick=tick)
        reply = self._answer(done, "preparation")
        assert reply.prepared is not None
        self.watch(reply.prepared.device)
        return reply.prepared

    def watch(self, device: Device, wait: Callable[[float], None] = time.sleep) -> None:
        """Have every probe from now on start on a device as free as it is now.

        Args:
            device: as it was found before the search.
            wait: lets time pass while memory has not come back.
        """
        self._baseline = Baseline(device, self._driver, wait)

    def inspect(self, spec: InspectSpec, *, deadline_s: float) -> Reply:
        """Describe the machine from inside a measuring process.

        Raises:
            ToolFailure: the process failed.
        """
        done = self.run(Request(spec=spec), name="inspect", deadline_s=deadline_s)
        return self._answer(done, "looking at the machine")

    def construct(self, spec: ConstructSpec, *, deadline_s: float) -> None:
        """Build TRL's argument objects from options, as TRL's own command would.

        Raises:
            BadInput: TRL refuses them.
            EnvironmentUnable: they need a package that is not installed.
            ToolFailure: the process failed otherwise.
        """
        done = self.run(Request(spec=spec), name="construct", deadline_s=deadline_s)
        self._answer(done, "building the config that is about to be written")

    def trace(
        self,
        spec: TraceSpec,
        *,
        deadline_s: float,
        tick: Tick,
        tell: Callable[[str, int, int], None],
    ) -> tuple[Trace, ...]:
        """Follow steps on fake tensors.

        Args:
            spec: what to trace, and for how long.
            deadline_s: seconds after which the process tree is ended.
            tick: called about 20 times a second with the seconds passed.
            tell: called with what is being done, how many are done, and how many there are.

        Returns:
            An answer per request.

        Raises:
            ToolFailure: the process failed.
        """
        name = "trace"
        told = and_progress(self._folder(name), tick, tell)
        done = self.run(Request(spec=spec), name=name, deadline_s=deadline_s, tick=told)
        return self._answer(done, "tracing").traces

    def _folder(self, name: str) -> Path:
        return self._work_dir / "probes" / name

    def _answer(self, done: Finished, what: str) -> Reply:
        if done.timed_out:
            raise ToolFailure(
                f"{what} took longer than {done.wall_seconds:.0f} s and was stopped.",
                f"Its log is {done.log_file}.",
            )
        if done.reply is None:
            raise ToolFailure(
                f"the process for {what} ended with code {done.code}: {done.tail(3)}",
                f"Its log is {done.log_file}.",
            )
        failure = done.reply.failure
        if failure is None:
            return done.reply
        if failure.user_error:
            raise BadInput(failure.message, failure.hint)
        done.require_able()
        raise ToolFailure(
            f"{what} failed with {failure.type_name}: {failure.message}",
            f"The traceback is in {done.log_file}.",
        )

    def run(
        self, request: Request, *, name: str, deadline_s: float, tick: Tick | None = None
    ) -> Finished:
        """Run one request to its end, or to its deadline.

        Whatever interrupts this call ends the process tree first.
        """
        folder = self._folder(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        request_file = folder.resolve() / REQUEST_FILE
        write_document(request_file, request)
        log_file = self._log_dir / f"{name}.txt"
        start = time.monotonic()
        own = request.spec.env if isinstance(request.spec, ProbeSpec) else {}
        process = self._launcher.launch(request_file, own)
        try:
            code, timed_out, rss = self._wait(process, start, deadline_s, tick)
            wall = time.monotonic() - start
            signal_group(process.pid, signal.SIGKILL)  # what it left behind
            reply = read_reply(folder / REPLY_FILE)
            return Finished(code, timed_out, wall, rss, reply, log_file, *read_phase(folder))
        except BaseException:
            end_tree(process)
            raise
        finally:
            if (folder / LOG_FILE).exists():
                said = (folder / LOG_FILE).read_text(encoding="utf-8", errors="replace")
                log_file.write_text(hide_text(said), encoding="utf-8")
            if not self._keep:
                shutil.rmtree(folder, ignore_errors=True)

    def _wait(
        self, process: Launched, start: float, deadline_s: float, tick: Tick | None
    ) -> tuple[int, bool, int | None]:
        peak_rss: int | None = None
        idleness = Idleness(process.pid) if math.isinf(deadline_s) else None
        while True:
            code = process.poll(_POLL_SECONDS)
            if code is not None:
                return code, False, peak_rss
            peak_rss = max(peak_rss or 0, rss_bytes(process.pid)) or peak_rss
            passed = time.monotonic() - start
            if tick is not None:
                tick(passed)
            idle = idleness is not None and idleness.seconds() > IDLE_S
            if passed > deadline_s or idle:
                return end_tree(process), True, peak_rss
