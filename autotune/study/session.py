"""Measures candidates of one job and keeps what comes of it; what to measure is decided elsewhere.

Every probe of a run goes through `Session.probe`: it becomes a record, is put on disk, told to
Optuna and to whoever watches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable
from autotune.core.job import Budget, Objective
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.prediction import Prediction
from autotune.core.result import Ratio, Skipped, TrialRecord
from autotune.knobs.changes import change_class
from autotune.knobs.facts import Facts
from autotune.knobs.rules import Verdict, judge
from autotune.knobs.translate import settings
from autotune.probe.classify import is_near, is_transient, mixing_refused, starved
from autotune.probe.judge_run import spilled_by_time
from autotune.probe.prober import Prober
from autotune.probe.protocol import ProbeSpec
from autotune.spaces.enumerate import Enumerated
from autotune.study.emptying import unknown_words
from autotune.study.foresight import Foresight
from autotune.study.idle import in_effect
from autotune.study.limits import Deadline, Limits, deadline_of, explained
from autotune.study.objective import estimate
from autotune.study.plan import EvalRows, probe_spec, verification
from autotune.study.refusals import signature
from autotune.study.storage import Store
from autotune.study.told import Told, told
from autotune.study.uninterrupted import uninterrupted

#: As many probes may die of one cause that is not memory before the search stops (DESIGN.md 5.12).
SAME_CAUSE_LIMIT = 3
#: Roles of probes predictions are corrected from: each candidate once.
LEARNED_FROM = ("baseline", "search")


class Observer(Protocol):
    """Whoever watches a search: the live table, the files, a test."""

    def started(self, candidate: Candidate, role: str) -> None:
        """A probe starts."""

    def tick(self, seconds: float) -> None:
        """A probe has been running this long."""

    def finished(self, record: TrialRecord) -> None:
        """A probe ended and is on disk."""


@dataclass
class Session:
    """One job that is being measured, over an enumerated space.

    Args:
        facts: job, rows and machine.
        space: the candidates.
        model_dir: local directory probes build the model from.
        rows_dir: folder of the prepared rows.
        budget: memory the job may use.
        prober: measures.
        store: keeps.
        limits: when to stop.
        observer: watches.
        eval_rows: rows the user's config evaluates on; None when it does not.
        has_weights: whether the model's real weights lie in ``model_dir``.
        foresight: what is expected of candidates; None when they were not traced.
        unchecked: why the winner was not verified, where time was the reason.
        clock: seconds that only grow.
    """

    facts: Facts
    space: Enumerated
    model_dir: str
    rows_dir: str
    budget: Budget
    prober: Prober
    store: Store
    limits: Limits
    observer: Observer
    eval_rows: EvalRows | None = None
    has_weights: bool = False
    foresight: Foresight | None = None
    trials: list[TrialRecord] = field(default_factory=list)
    speedup: Ratio | None = None
    unchecked: str = ""
    clock: Callable[[], float] = time.monotonic
    _start: float = 0.0

    @property
    def _passed_s(self) -> float:
        return self.clock() - self._start

    def left_s(self, *, checks: float) -> float:
        """Return what is left of the search's time and this share of the checks'; may be below 0.

        Infinite without a bound.
        """
        search_s, checks_s = self.limits.search_s, self.limits.checks_s
        if search_s is None or checks_s is None:
            return math.inf
        return search_s + checks * checks_s - self._passed_s

    @property
    def objective(self) -> Objective:
        """What is minimised."""
        return self.facts.job.objective

    @property
    def real_weights(self) -> Literal["random", "real"]:
        """``real`` when the weights are at hand, else what the job asks for (DESIGN.md 5.11)."""
        return "real" if self.has_weights else self.facts.job.weights

    def predictions(self) -> list[Prediction]:
        """Return what is expected of every traced candidate, fastest first."""
        return [] if self.foresight is None else self.foresight.all()

    def predicted(self, candidate: Candidate) -> Prediction | None:
        """Return what is expected of a candidate; None when it was not traced."""
        return None if self.foresight is None else self.foresight.of(candidate)

    def gated(self) -> dict[str, Prediction]:
        """Return, by key, what is not probed because of its prediction."""
        return {}

    def refused(self) -> list[Skipped]:
        """Return what only running showed to be invalid."""
        return []

    def probe(self, candidate: Candidate, role: str, *, eval_batch: int = 1) -> TrialRecord:
        translated = settings(candidate, self.facts)
        spec = probe_spec(
            candidate, translated, self.facts, self.model_dir, self.rows_dir, self.budget
        )
        options = translated.options
        if role == "verification":
            look = verification(translated, self.facts, self.eval_rows, eval_batch)
            if eval_batch != int(self.facts.option("per_device_eval_batch_size") or 1):
                options = {**options, "per_device_eval_batch_size": eval_batch}
            # What is emitted is looked at with what will be trained, when it is at hand.
            spec = spec.model_copy(
                update={
                    "verification": look,
                    "options": {**spec.options, **options},
                    "weights": self.real_weights,
                }
            )
        number = self.trials[-1].number + 1 if self.trials else 0
        refused = judge(candidate, self.facts, own=role != "search")
        stored = None
        if role == "search" and refused.valid:  # what a rule is against never becomes a trial
            params = {n: self._searched(candidate, n) for n in self.space.choices}
            stored = self.store.begin(params, self.space.choices, candidate.key, number)
        expected = self.predicted(candidate)
        self.observer.started(candidate, role)
        try:
            report = (
                self._judged(self._measure(spec, f"{number:04d}", self.deadline(candidate, role)))
                if refused.valid
                else _refused(refused)
            )
        except BaseException:
            self.store.abandon(stored)
            raise
        measured = report.measurement
        options, idle = in_effect(candidate, options, measured, self.facts)
        fits = report.ending.outcome is Outcome.FITS and measured is not None
        mixes = candidate.get("packing") == "wrapped" or bool(measured and measured.documents_mix)
        estimated = (
            estimate(candidate, translated, measured, self.facts)
            if fits and measured is not None
            else None
        )
        notes = (
            "documents in one row see each other" if mixes else idle,
            unknown_words(estimated),
        )
        record = TrialRecord(
            number=number,
            candidate=candidate,
            options=options,
            env=translated.env,
            pretruncate_tokens=translated.pretruncate_tokens,
            changes="mixing" if mixes else change_class(candidate, self.facts),
            note="; ".join(filter(None, notes)),
            role=role,  # type: ignore[arg-type]
            report=report,
            estimate=estimated,
            prediction=expected,
        )
        if self.foresight is not None and role in LEARNED_FROM:
            self.foresight.learn(candidate, report)
        with uninterrupted():
            self.trials.append(record)
            self.store.finish(stored, record, self._told(record))
            self.observer.finished(record)
        self._stop_at_one_cause()
        return record

    def deadline(self, candidate: Candidate, role: str) -> Deadline:
        """Return when a probe of a candidate, started now, is ended."""
        left_s = self.left_s(checks=1.0)
        return deadline_of(candidate, role, self.limits, self.trials, self.predicted, left_s)

    def _measure(self, spec: ProbeSpec, name: str, deadline: Deadline) -> ProbeReport:
        def probe(spec: ProbeSpec, name: str) -> ProbeReport:
            report = self.prober.probe(
                spec, name=name, deadline_s=deadline.seconds, tick=self.observer.tick
            )
            ending = explained(report.ending, deadline)
            return report.model_copy(update={"ending": ending})

        report = probe(spec, name)
        if is_transient(report):
            report = probe(spec, f"{name}-again")
        if report.ending.outcome is not Outcome.CRASHED or spec.cap_bytes is None:
            return report
        # Starved libraries die in many ways (a failed primitive, an illegal access, a signal).
        # Look once more without the cap: a candidate that then runs and needs more than it had
        # was out of memory; one that runs and needs far less met a fault that may not come again.
        room = int(0.9 * self.facts.device.free_bytes)
        free = spec.model_copy(update={"cap_bytes": room, "memory_only": True})
        second = probe(free, f"{name}-uncapped")
        if second.ending.outcome is Outcome.FITS and not is_near(second, spec.cap_bytes):
            return probe(spec, f"{name}-again")
        return starved(report, second, spec.cap_bytes)

    def _judged(self, report: ProbeReport) -> ProbeReport:
        """Return the report in the light of the other trials and of what the job allows."""
        if "mixing" not in self.facts.job.allow:
            report = mixing_refused(report)
        return self._not_spilled(report)

    def _not_spilled(self, report: ProbeReport) -> ProbeReport:
        """Return the report, as `spilled` when its times say that a driver paged to the host."""
        measured = report.measurement
        if self.facts.device.kind == "cpu" or report.ending.outcome is not Outcome.FITS:
            return report
        others = [t.report.measurement for t in self.trials if t.estimate is not None]
        known = [m for m in others if m is not None]
        ending = spilled_by_time(measured, known) if measured is not None else None
        if ending is None or measured is None:
            return report
        peak = measured.peaks.deciding_bytes
        return report.model_copy(update={"ending": ending, "needed_bytes": peak})

    def _told(self, record: TrialRecord) -> Told | None:
        return told(record, self.trials, self.budget, self.objective)

    def _searched(self, candidate: Candidate, name: str) -> str | int | float | bool | None:
        """Return the choice of a searched knob; absent or off-list ones take a listed value."""
        values = self.space.choices[name]
        value = candidate.get(name)
        if any(value == v and type(value) is type(v) for v in values):
            return value
        if type(value) is int:
            numbers = [v for v in values if type(v) is int]
            larger = [v for v in numbers if v >= value]
            if numbers:
                return min(larger) if larger else max(numbers)
        return values[0]

    def _stop_at_one_cause(self) -> None:
        """Stop when nothing ever fitted and the last probes all died of one non-memory cause."""
        ends = [t.report.ending for t in self.trials]
        last = ends[-SAME_CAUSE_LIMIT:]
        if len(last) < SAME_CAUSE_LIMIT or any(e.outcome is Outcome.FITS for e in ends):
            return
        if any(e.outcome.is_memory for e in last) or len({signature(e) for e in last}) > 1:
            return
        tail = " / ".join(last[-1].detail.strip().splitlines()[-2:])
        raise EnvironmentUnable(
            f"the first {len(last)} probes all ended the same way: {last[-1].reason}.",
            f"{tail} The whole log is {self.trials[-1].report.log_file}.".strip(),
        )


def _refused(verdict: Verdict) -> ProbeReport:
    """Return what is known of a config a rule is against; no probe is spent on it."""
    ending = Ending(outcome=Outcome.INVALID, phase=Phase.LOAD, reason=verdict.reason)
    return ProbeReport(ending=ending)
