"""The search: baseline, first candidates, then what the sampler proposes; then the confirmation.

Reads as the order of events. What to try is in strategy.py and suggest.py, what an ending means in
objective.py and choose.py, what is kept in storage.py.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from autotune.core.candidate import Candidate
from autotune.core.errors import EnvironmentUnable
from autotune.core.job import Budget, Objective
from autotune.core.measurement import ProbeReport
from autotune.core.outcome import Ending, Outcome, Phase
from autotune.core.result import Ratio, TrialRecord
from autotune.knobs.catalog import user_candidate
from autotune.knobs.changes import change_class
from autotune.knobs.facts import Facts
from autotune.knobs.rules import Verdict, judge
from autotune.knobs.translate import canonical, settings
from autotune.probe.classify import mixing_refused, spilled_by_time, starved
from autotune.probe.protocol import ProbeSpec
from autotune.probe.runner import Prober
from autotune.spaces.enumerate import Enumerated
from autotune.study.choose import (
    choice,
    may_recover,
    paired_ratio,
    ranking,
    reference,
    score,
    verification_of,
)
from autotune.study.objective import estimate
from autotune.study.plan import EvalRows, probe_spec, verification
from autotune.study.storage import Store
from autotune.study.strategy import cheapest, first_candidates
from autotune.study.suggest import Seen, propose

#: As many probes may die of one cause that is not memory before the search stops (DESIGN.md 5.12).
SAME_CAUSE_LIMIT = 3
#: Rounds in which the reference and the winner are measured in turns.
CONFIRMATION_ROUNDS = 3
#: As many are added at most while the interval does not say which of the two is faster.
MOST_CONFIRMATION_ROUNDS = 6
#: A verification runs ten times the updates of a probe and times none: it gets more time.
VERIFICATION_TIMES = 5


@dataclass(frozen=True)
class Limits:
    """When to stop.

    Args:
        trials: probes of the search, the baseline included.
        search_s: seconds the search may take; None without a bound.
        probe_s: seconds one probe may take.
    """

    trials: int
    search_s: float | None
    probe_s: float


class Observer(Protocol):
    """Whoever watches a search: the live table, the files, a test."""

    def started(self, candidate: Candidate, role: str) -> None:
        """A probe starts."""

    def tick(self, seconds: float) -> None:
        """A probe has been running this long."""

    def finished(self, record: TrialRecord) -> None:
        """A probe ended and is on disk."""


@dataclass
class Search:
    """One search over an enumerated space.

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
    trials: list[TrialRecord] = field(default_factory=list)
    speedup: Ratio | None = None
    _start: float = field(default_factory=time.monotonic)

    @property
    def objective(self) -> Objective:
        """What is minimised."""
        return self.facts.job.objective

    def run(self) -> None:
        """Search until the limits are reached or everything was probed; fills ``trials``.

        Raises:
            EnvironmentUnable: the first probes all died of one cause that is not memory.
        """
        self.trials.extend(self.store.records())
        queue = [self._candidate_of(params) for params in self.store.reap()]
        own = canonical(user_candidate(self.facts), self.facts)
        while self._baseline_is_due():
            self._probe(own, "baseline")
        if not self._fits(own):
            least = cheapest(self.space.candidates)
            if least is not None and least.key not in self._visited():
                self._probe(least, "search")
            if least is not None and self._does_not_fit(least) and self._does_not_fit(own):
                return  # nothing can be expected to fit: say so instead of trying the rest
        queue += first_candidates(self.space.candidates, own, self.facts)
        while self._may_go_on():
            visited = self._visited()
            queue = [c for c in (*self._disturbed(), *queue) if c.key not in visited]
            candidate = queue.pop(0) if queue else self._proposal(visited)
            if candidate is None:
                break
            self._probe(candidate, "search")
        self.confirm()
        self.verify()

    def verify(self) -> None:
        """Look at the chosen candidate for longer; one that is not safe gives way to the next.

        When only evaluation runs out of memory its batch is halved until it fits.
        """
        while True:
            chosen, _ = choice(self.trials, self.speedup, self.objective)
            if chosen is None or verification_of(self.trials, chosen) is not None:
                return
            batch = int(self.facts.option("per_device_eval_batch_size") or 1)
            record = self._probe(chosen.candidate, "verification", eval_batch=batch)
            while _only_evaluation_failed(record) and batch > 1:
                batch //= 2
                record = self._probe(chosen.candidate, "verification", eval_batch=batch)
            left, _ = choice(self.trials, self.speedup, self.objective)
            if left is not None and left.candidate.key == chosen.candidate.key:
                return
            self.speedup = None
            self.confirm()

    def confirm(self) -> None:
        """Measure the best candidate and the reference in turns and set ``speedup``.

        One that fails on the way does not fit after all; the next best takes its place.
        """
        while True:
            order = ranking(self.trials, self.objective)
            against = reference(self.trials)
            if not order or against is None or order[0].candidate.key == against.candidate.key:
                return
            rounds = self._in_turns(against.candidate, order[0].candidate)
            if rounds is None:
                continue
            if len(rounds) >= 2:
                self.speedup = paired_ratio(
                    [r[0] for r in rounds], [r[1] for r in rounds], against.candidate.key
                )
            return

    def _in_turns(self, against: Candidate, best: Candidate) -> list[tuple[float, float]] | None:
        """Measure two candidates in turns; None when one of them fails.

        Turns a resumed search finds among its trials are not taken again.
        """
        wanted = [against, best] * MOST_CONFIRMATION_ROUNDS
        done = [t for t in self.trials if t.role == "confirmation"]
        done = done[len(done) - self._turns_taken(wanted) :]
        for candidate in wanted[len(done) :]:
            if _decided(done):
                break
            record = self._probe(candidate, "confirmation")
            if record.estimate is None and not may_recover(record):
                return None
            done.append(record)
        return _pairs(done)

    def _turns_taken(self, wanted: list[Candidate]) -> int:
        """Return how many of the wanted turns the last trials are."""
        trials = [t for t in self.trials if t.role != "verification"]
        for count in range(min(len(wanted), len(trials)), 0, -1):
            last = trials[-count:]
            if all(t.role == "confirmation" for t in last) and [t.candidate.key for t in last] == [
                c.key for c in wanted[:count]
            ]:
                return count
        return 0

    def _probe(self, candidate: Candidate, role: str, *, eval_batch: int = 1) -> TrialRecord:
        translated = settings(candidate, self.facts)
        spec = probe_spec(
            candidate, translated, self.facts, self.model_dir, self.rows_dir, self.budget
        )
        options = translated.options
        if role == "verification":
            look = verification(translated, self.facts, self.eval_rows, eval_batch)
            if eval_batch != int(self.facts.option("per_device_eval_batch_size") or 1):
                options = {**options, "per_device_eval_batch_size": eval_batch}
            spec = spec.model_copy(
                update={"verification": look, "options": {**spec.options, **options}}
            )
        number = self.trials[-1].number + 1 if self.trials else 0
        stored = None
        if role == "search":
            params = {n: self._searched(candidate, n) for n in self.space.choices}
            stored = self.store.begin(params, self.space.choices, candidate.key)
        self.observer.started(candidate, role)
        try:
            refused = judge(candidate, self.facts, own=role != "search")
            report = (
                self._judged(self._measure(spec, f"{number:04d}"))
                if refused.valid
                else _refused(refused)
            )
        except BaseException:
            self.store.abandon(stored)
            raise
        measured = report.measurement
        fits = report.ending.outcome is Outcome.FITS and measured is not None
        mixes = candidate.get("packing") == "wrapped" or bool(measured and measured.documents_mix)
        record = TrialRecord(
            number=number,
            candidate=candidate,
            options=options,
            env=translated.env,
            pretruncate_tokens=translated.pretruncate_tokens,
            changes="mixing" if mixes else change_class(candidate, self.facts),
            note="documents in one row see each other" if mixes else "",
            role=role,  # type: ignore[arg-type]
            report=report,
            estimate=(
                estimate(candidate, translated, measured, self.facts)
                if fits and measured is not None
                else None
            ),
        )
        self.trials.append(record)
        self.store.finish(stored, record, *self._verdict(record))
        self.observer.finished(record)
        self._stop_at_one_cause()
        return record

    def _measure(self, spec: ProbeSpec, name: str) -> ProbeReport:
        def probe(spec: ProbeSpec, name: str) -> ProbeReport:
            longer = VERIFICATION_TIMES if spec.verification is not None else 1
            deadline = longer * self.limits.probe_s
            return self.prober.probe(spec, name=name, deadline_s=deadline, tick=self.observer.tick)

        report = probe(spec, name)
        if report.ending.outcome is not Outcome.CRASHED or spec.cap_bytes is None:
            return report
        # Starved libraries die in many ways (a failed primitive, a signal). Look once more without
        # the cap: a candidate that then runs and needs more than it had was out of memory.
        room = int(0.9 * self.facts.device.free_bytes)
        free = spec.model_copy(update={"cap_bytes": room, "memory_only": True})
        second = probe(free, f"{name}-uncapped")
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

    def _verdict(self, record: TrialRecord) -> tuple[float | None, float | None]:
        """Return the objective and the violation Optuna is told; None fails the trial."""
        violation = self._violation(record)
        if record.estimate is not None:
            return score(record, self.objective)[0], violation
        if record.report.ending.outcome.is_memory:
            return self._worst(), violation
        return None, None

    def _violation(self, record: TrialRecord) -> float:
        limit = self.budget.usable_bytes
        measured = record.report.measurement
        if record.report.ending.outcome.is_memory:
            return max(0.01, (record.report.needed_bytes or limit) / limit - 1.0)
        peak = measured.peaks.deciding_bytes if measured is not None else None
        # It ran under the cap, so it fits: a resident peak a little above stays at the border.
        return min(0.0, (peak or limit) / limit - 1.0)

    def _worst(self) -> float:
        known = [score(t, self.objective)[0] for t in self.trials if t.estimate is not None]
        return max(known, default=1e9)

    def _proposal(self, visited: set[str]) -> Candidate | None:
        seen = []
        listed = {c.key for c in self.space.candidates}
        for t in self.trials:
            value, violation = self._verdict(t)
            if t.role == "confirmation" or t.candidate.key not in listed:
                continue
            if value is not None and violation is not None:
                params = {n: self._searched(t.candidate, n) for n in self.space.choices}
                seen.append(Seen(params, value, violation))
        return propose(
            self.space.choices,
            self.space.candidates,
            seen,
            visited,
            self.facts,
            self.facts.job.seed + len(self.trials),
        )

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

    def _candidate_of(self, params: dict[str, str | int | float | bool | None]) -> Candidate:
        own = user_candidate(self.facts)
        return canonical(own.with_knobs(**params), self.facts)

    def _visited(self) -> set[str]:
        """Return keys that need not come again: measured, disturbed twice, or given up."""
        times = Counter(t.candidate.key for t in self.trials)
        measured = {
            t.candidate.key for t in self.trials if not may_recover(t) or times[t.candidate.key] > 1
        }
        return measured | self.store.given_up

    def _disturbed(self) -> list[Candidate]:
        """Return candidates whose probe ended for a reason outside them."""
        return [t.candidate for t in self.trials if t.role == "search" and may_recover(t)]

    def _baseline_is_due(self) -> bool:
        mine = [t for t in self.trials if t.role == "baseline"]
        return not mine or (len(mine) == 1 and may_recover(mine[0]))

    def _fits(self, candidate: Candidate) -> bool:
        return any(t.candidate.key == candidate.key and t.estimate is not None for t in self.trials)

    def _does_not_fit(self, candidate: Candidate) -> bool:
        return any(
            t.candidate.key == candidate.key and t.report.ending.outcome.is_memory
            for t in self.trials
        )

    def _may_go_on(self) -> bool:
        if sum(t.role in ("baseline", "search") for t in self.trials) >= self.limits.trials:
            return False
        passed = time.monotonic() - self._start
        return self.limits.search_s is None or passed < self.limits.search_s

    def _stop_at_one_cause(self) -> None:
        """Stop when nothing ever fitted and the last probes all died of one non-memory cause."""
        ends = [t.report.ending for t in self.trials]
        last = ends[-SAME_CAUSE_LIMIT:]
        if len(last) < SAME_CAUSE_LIMIT or any(e.outcome is Outcome.FITS for e in ends):
            return
        if any(e.outcome.is_memory for e in last) or len({_signature(e) for e in last}) > 1:
            return
        tail = " / ".join(last[-1].detail.strip().splitlines()[-2:])
        raise EnvironmentUnable(
            f"the first {len(last)} probes all ended the same way: {last[-1].reason}.",
            f"{tail} The whole log is {self.trials[-1].report.log_file}.",
        )


def _signature(ending: Ending) -> tuple[Outcome, str]:
    """Return what two endings of one cause share: addresses, sizes and counts differ."""
    return ending.outcome, re.sub(r"0x[0-9a-fA-F]+|\d+", "#", ending.reason)


def _pairs(turns: list[TrialRecord]) -> list[tuple[float, float]]:
    """Return the scores of complete turns: (reference, candidate)."""
    return [
        (_seconds(a), _seconds(b))
        for a, b in zip(turns[::2], turns[1::2], strict=False)
        if a.estimate is not None and b.estimate is not None
    ]


def _decided(turns: list[TrialRecord]) -> bool:
    """Whether enough whole rounds were taken and their interval lies on one side of equal."""
    pairs = _pairs(turns)
    if len(turns) % 2 or len(pairs) < CONFIRMATION_ROUNDS:
        return False
    ratio = paired_ratio([p[0] for p in pairs], [p[1] for p in pairs], "")
    return ratio.low > 1.0 or ratio.high < 1.0


def _only_evaluation_failed(record: TrialRecord) -> bool:
    """Whether a verification trained, and ran out of memory while it evaluated."""
    ending = record.report.ending
    return ending.outcome.is_memory and ending.phase is Phase.EVAL


def _refused(verdict: Verdict) -> ProbeReport:
    """Return what is known of a config a rule is against; no probe is spent on it."""
    ending = Ending(outcome=Outcome.INVALID, phase=Phase.LOAD, reason=verdict.reason)
    return ProbeReport(ending=ending)


def _seconds(trial: TrialRecord) -> float:
    assert trial.estimate is not None
    return trial.estimate.score_seconds
