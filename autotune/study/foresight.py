"""Predictions of one job's candidates, and what its probes teach about them.

Has candidates traced by a measuring process, keeps the traces, and answers with predictions that
get better with every finished probe. What to do about a prediction is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.cuda_memory import usual_context_bytes
from autotune.core.environment import Device
from autotune.core.measurement import Measurement, ProbeReport
from autotune.core.memory import charged_bytes
from autotune.core.prediction import NotTraced, Prediction
from autotune.core.rates import Rates
from autotune.core.traced_step import TracedPeak, TracedStep
from autotune.knobs.facts import Facts
from autotune.predict.calibrate import PeakSeen, TimeSeen, correct_peak, correct_time
from autotune.predict.devices.measured import read_rates, write_rates
from autotune.predict.forecast import (
    Corrections,
    Foreseen,
    Timed,
    foresee,
    key_of,
    micro_times,
    predict,
    timed,
)
from autotune.predict.request import Target, TraceRequest
from autotune.predict.step_time import StepTimes
from autotune.predict.wanted import wanted
from autotune.probe.protocol import InspectSpec, Reply, Trace, TraceSpec
from autotune.study.traces import name_of

_INSPECT_DEADLINE_S = 900.0
#: A trace that began within its time may end after it.
_GRACE_S = 300.0
#: Why a step has no trace when no time was left for one.
NOT_KEPT = "it was not traced before"

Tick = Callable[[float], None]
Tell = Callable[[str, int, int], None]


class Tracing(Protocol):
    """A way to have steps traced and this machine measured; the runner is one."""

    def trace(
        self, spec: TraceSpec, *, deadline_s: float, tick: Tick, tell: Tell
    ) -> tuple[Trace, ...]:
        """Follow steps on fake tensors."""

    def inspect(self, spec: InspectSpec, *, deadline_s: float) -> Reply:
        """Describe and measure the machine."""


def trace_candidates(
    candidates: Sequence[Candidate],
    facts: Facts,
    model_dir: str,
    tracing: Tracing,
    *,
    seconds: float,
    tick: Tick,
    tell: Tell,
    kept: dict[str, TracedStep] | None = None,
) -> tuple[list[Foreseen], list[NotTraced]]:
    """Have candidates traced, in their order, for as long as there is time.

    Args:
        candidates: canonical candidates.
        facts: job, rows, and the device predicted for.
        model_dir: folder with the model's config.
        tracing: traces.
        seconds: no trace is begun after this long; 0 takes what is kept and nothing else.
        tick: called about 20 times a second with the seconds passed.
        tell: called with what is being done, how many are done, and how many there are.
        kept: steps that were traced before, by `name_of` their request; new ones are added.

    Returns:
        The traced candidates, and the others with the reason.

    Raises:
        ToolFailure: the measuring process failed.
    """
    asked = wanted(candidates, facts, model_dir, _target(facts.device))
    requests = {key_of(r): r for one in asked for r in one.requests}
    kept = {} if kept is None else kept
    names = {key: name_of(request) for key, request in requests.items()}
    traced: dict[str, TracedStep | str] = {
        key: kept.get(name, NOT_KEPT) for key, name in names.items()
    }
    missing = {key: requests[key] for key, step in traced.items() if isinstance(step, str)}
    if missing and seconds > 0:
        answers = _traced(missing.values(), tracing, seconds=seconds, tick=tick, tell=tell)
        for key, answer in zip(missing, answers, strict=True):
            traced[key] = answer.step or answer.refusal
    kept |= {names[key]: step for key, step in traced.items() if isinstance(step, TracedStep)}
    return foresee(asked, traced)


def rates_here(device: Device, torch_version: str, cache_dir: Path, tracing: Tracing) -> Rates:
    """Return the rates of a device of this machine, measured now unless they are known.

    Args:
        device: the device.
        torch_version: version of torch that computes.
        cache_dir: folder of caches shared between runs.
        tracing: measures.

    Raises:
        ToolFailure: the measuring process failed.
    """
    known = read_rates(cache_dir, device, torch_version)
    if known is not None:
        return known
    reply = tracing.inspect(InspectSpec(rates=(device.label,)), deadline_s=_INSPECT_DEADLINE_S)
    rates = reply.rates[0]
    write_rates(cache_dir, device, torch_version, rates)
    return rates


def trace_peaks(
    candidates: Sequence[Candidate],
    facts: Facts,
    model_dir: str,
    tracing: Tracing,
    *,
    seconds: float,
    tick: Tick,
    tell: Tell,
) -> dict[str, TracedPeak]:
    """Return what the peaks of a few candidates are made of, by key; refused ones are left out.

    Arguments are those of `trace_candidates`; only the steps whose peak decides are traced.

    Raises:
        ToolFailure: the measuring process failed.
    """
    asked = wanted(candidates, facts, model_dir, _target(facts.device))
    deciding = [request for one in asked for request in one.deciding]
    answers = iter(_traced(deciding, tracing, seconds=seconds, tick=tick, tell=tell))
    found: dict[str, TracedPeak] = {}
    for one in asked:
        steps = [next(answers).step for _ in one.deciding]
        known = [step for step in steps if step is not None]
        if len(known) == len(steps):
            highest = max(known, key=lambda step: step.peak_bytes)
            found[one.candidate.key] = TracedPeak(
                peak_bytes=highest.peak_bytes,
                phase=highest.phase,
                split=highest.split,
                offloaded_bytes=max(step.offloaded_bytes for step in known),
            )
    return found


def _traced(
    requests: Iterable[TraceRequest], tracing: Tracing, *, seconds: float, tick: Tick, tell: Tell
) -> tuple[Trace, ...]:
    spec = TraceSpec(requests=tuple(r.model_dump(mode="json") for r in requests), seconds=seconds)
    return tracing.trace(spec, deadline_s=seconds + _GRACE_S, tick=tick, tell=tell)


def _target(device: Device) -> Target:
    return "cpu" if device.kind == "cpu" else "cuda"


@dataclass
class Foresight:
    """Hold what is foreseen of a job's candidates on one device.

    Args:
        facts: job, rows and device.
        rates: what the device reaches.
        foreseen: the traced candidates.
    """

    facts: Facts
    rates: Rates
    foreseen: Sequence[Foreseen]
    _micro: list[TimeSeen] = field(default_factory=list)
    _update: list[TimeSeen] = field(default_factory=list)
    _peaks: list[PeakSeen] = field(default_factory=list)
    _traced: dict[str, tuple[Foreseen, Timed]] = field(init=False)
    _predicted: dict[str, Prediction] = field(init=False)

    def __post_init__(self) -> None:
        self._traced = {
            one.wanted.candidate.key: (one, timed(one, self.rates)) for one in self.foreseen
        }
        self._predict()

    def of(self, candidate: Candidate) -> Prediction | None:
        """Return the prediction of a candidate; None when it was not traced."""
        return self._predicted.get(candidate.key)

    def all(self) -> list[Prediction]:
        """Return every prediction, fastest first."""
        return sorted(self._predicted.values(), key=lambda p: p.score_seconds)

    def learn(self, candidate: Candidate, report: ProbeReport) -> None:
        """Take in how a probe of a candidate ended.

        Args:
            candidate: what was probed; nothing is learned of one that was not traced.
            report: how it ended and what it measured.
        """
        if candidate.key not in self._traced:
            return
        one, times = self._traced[candidate.key]
        traced = one.peak.peak_bytes
        measured = report.measurement
        if report.ending.outcome.is_memory:
            if report.needed_bytes is not None:
                self._peaks.append(PeakSeen(traced, report.needed_bytes, at_least=True))
        elif measured is not None:
            peak = charged_bytes(measured.peaks, self.facts.device)
            if peak:
                self._peaks.append(PeakSeen(traced, peak))
            self._learn_times(one, times, measured)
        self._predict()

    def _learn_times(self, one: Foreseen, expected: Timed, measured: Measurement) -> None:
        steps = measured.steady_steps
        if steps:
            times = micro_times(
                one,
                np.asarray([float(s.padded_tokens) for s in steps]),
                np.asarray([float(s.width) for s in steps]),
                self.rates,
            )
            took = sum(s.seconds for s in steps)
            self._micro.append(TimeSeen(_totals(times.summed(np.ones(len(steps)))), took))
        if measured.optimizer_seconds:
            took = float(np.median(measured.optimizer_seconds))
            self._update.append(TimeSeen(_totals(expected.update), took))

    def _predict(self) -> None:
        device = self.facts.device
        beside = 0 if device.kind == "cpu" else usual_context_bytes(device.capability)
        corrections = Corrections(
            micro=correct_time(self._micro, measured_rates=self.rates.measured),
            update=correct_time(self._update, measured_rates=self.rates.measured),
            peak=correct_peak(self._peaks, prior_offset_bytes=beside),
        )
        self._predicted = {
            key: predict(one, times, corrections) for key, (one, times) in self._traced.items()
        }


def _totals(times: StepTimes) -> dict[str, float]:
    return {name: float(seconds[0]) for name, seconds in times.parts.items()}
