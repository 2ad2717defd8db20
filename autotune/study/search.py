"""The search: baseline, what is promising, then what the sampler proposes; then the confirmation.

Reads as the order of events. What to try is in strategy.py and suggest.py, how a candidate is
measured in session.py, what an ending means in objective.py and choose.py, what is kept in
storage.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.outcome import Outcome, Phase
from autotune.core.prediction import Fit, Prediction
from autotune.core.result import TrialRecord
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical
from autotune.study.choose import (
    choice,
    may_recover,
    paired_ratio,
    ranking,
    reference,
    verification_of,
)
from autotune.study.foresight import Foresight
from autotune.study.guard import guard_of, guard_spec, not_comparable
from autotune.study.session import LEARNED_FROM, VERIFICATION_TIMES, Session
from autotune.study.strategy import first_candidates, promising, smallest, tracing_seconds
from autotune.study.suggest import Seen, propose
from autotune.study.uninterrupted import uninterrupted

#: Rounds in which the reference and the winner are measured in turns.
CONFIRMATION_ROUNDS = 3
#: As many are added at most while the interval does not say which of the two is faster.
MOST_CONFIRMATION_ROUNDS = 6


#: Most promising candidates probed before the sampler, which models nothing earlier, has its turn.
_FIRST = 6


@dataclass
class Search(Session):
    """One search over an enumerated space; its other fields are the session's.

    Args:
        look_ahead: has candidates traced for so many seconds and returns what is expected of
            them, None when it cannot; None never does.
        clock: seconds that only grow.
    """

    look_ahead: Callable[[Sequence[Candidate], float], Foresight | None] | None = None
    clock: Callable[[], float] = time.monotonic
    _start: float = 0.0

    def run(self) -> None:
        """Search until the limits are reached or everything was probed; fills ``trials``.

        Raises:
            EnvironmentUnable: the first probes all died of one cause that is not memory.
        """
        self._start = self.clock()
        self.trials.extend(self.store.records())
        queue = [self._candidate_of(params) for params in self.store.reap()]
        own = canonical(user_candidate(self.facts), self.facts)
        while self._baseline_is_due():
            self.probe(own, "baseline")
        self._foresee(own)
        if not self._fits(own):
            least = smallest(self.space.candidates, self.predictions())
            if least is not None and least.key not in self._visited():
                self.probe(least, "search")
            if least is not None and self._does_not_fit(least) and self._does_not_fit(own):
                return  # nothing can be expected to fit: say so instead of trying the rest
        if self.foresight is None:
            queue += first_candidates(self.space.candidates, own, self.facts)
        while self._may_go_on():
            done = self._visited() | set(self.gated())
            queue = [c for c in (*self._disturbed(), *queue) if c.key not in done]
            candidate = queue.pop(0) if queue else self._next(done)
            if candidate is None:
                break
            self.probe(candidate, "search")
        self._keep_gated()
        self.confirm()
        self.verify()

    def gated(self) -> dict[str, Prediction]:
        """Return, by key, what is not probed: predicted not to fit, the error band included."""
        visited = self._visited()
        return {
            p.candidate.key: p
            for p in self.predictions()
            if p.candidate.key not in visited and p.fit(self.budget) is Fit.HOPELESS
        }

    def _foresee(self, own: Candidate) -> None:
        """Have the candidates traced where that pays, and take in what was probed already."""
        seconds = tracing_seconds(self.trials, self.limits.trials)
        if self.look_ahead is None or seconds is None:
            return
        everything = {c.key: c for c in (own, *self.space.candidates)}
        if self.limits.search_s is not None:
            seconds = min(seconds, max(0.0, self.limits.search_s - self._passed_s))
        self.foresight = self.look_ahead(list(everything.values()), seconds)
        for trial in self.trials:
            if self.foresight is not None and trial.role in LEARNED_FROM:
                self.foresight.learn(trial.candidate, trial.report)

    def _keep_gated(self) -> None:
        """Tell Optuna what was not probed, with the peak it was predicted to need."""
        for key, prediction in self.gated().items():
            params = {n: self._searched(prediction.candidate, n) for n in self.space.choices}
            self.store.pruned(params, self.space.choices, key, prediction.peak_bytes)

    def _next(self, done: set[str]) -> Candidate | None:
        """Return the most promising candidate, and in every second turn the sampler's."""
        taken = sum(t.role == "search" for t in self.trials)
        best = promising(self.predictions(), self.budget, self.objective, done)
        if best is not None and (taken < _FIRST or taken % 2 == 0):
            return best
        return self._proposal(done)

    def verify(self) -> None:
        """Look at the chosen candidate for longer; one that fails gives way to the next.

        First that it trains what the reference trains, then that it is safe. When only evaluation
        runs out of memory its batch is halved until it fits. When the time for checks is over, the
        winner is left unverified and ``unchecked`` says so.
        """
        while True:
            chosen, _ = choice(self.trials, self.speedup, self.objective)
            if chosen is None:
                return
            if verification_of(self.trials, chosen) is None and self._is_over(checks=1.0):
                self.unchecked = "the time after --timeout was over; raise it, or run --resume"
                return
            if not self._trains_the_same(chosen):
                self.speedup = None
                self.confirm()
                continue
            if verification_of(self.trials, chosen) is not None:
                return
            batch = int(self.facts.option("per_device_eval_batch_size") or 1)
            record = self.probe(chosen.candidate, "verification", eval_batch=batch)
            while _only_evaluation_failed(record) and batch > 1 and not self._is_over(checks=1.0):
                batch //= 2
                record = self.probe(chosen.candidate, "verification", eval_batch=batch)
            left, _ = choice(self.trials, self.speedup, self.objective)
            if left is not None and left.candidate.key == chosen.candidate.key:
                return
            self.speedup = None
            self.confirm()

    def _trains_the_same(self, chosen: TrialRecord) -> bool:
        """Compare one update of the chosen candidate with the reference's, where that can be done.

        Returns:
            False when the two were seen to differ.
        """
        against = reference(self.trials)
        same = against is None or against.candidate.key == chosen.candidate.key
        if same or against is None or not_comparable(chosen, against, self.facts):
            return True
        done = guard_of(self.trials, chosen)
        if done is not None and not may_recover(done):
            return True
        spec = guard_spec(
            chosen,
            against,
            self.facts,
            model_dir=self.model_dir,
            rows_dir=self.rows_dir,
            weights=self.real_weights,
        )
        number = self.trials[-1].number + 1
        self.observer.started(chosen.candidate, "guard")
        report = self.prober.compare(
            spec,
            name=f"{number:04d}",
            deadline_s=VERIFICATION_TIMES * self.limits.probe_s,
            tick=self.observer.tick,
        )
        record = chosen.model_copy(
            update={"number": number, "role": "guard", "report": report, "estimate": None}
        )
        with uninterrupted():
            self.trials.append(record)
            self.store.finish(None, record, None, None)
            self.observer.finished(record)
        return report.compared is None or report.ending.outcome is Outcome.FITS

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
            if _decided(done) or self._is_over(checks=0.5):  # the rest is for verifying
                break
            record = self.probe(candidate, "confirmation")
            if record.estimate is None and not may_recover(record):
                return None
            done.append(record)
        return _pairs(done)

    def _turns_taken(self, wanted: list[Candidate]) -> int:
        """Return how many of the wanted turns the last trials are."""
        trials = [t for t in self.trials if t.role not in ("guard", "verification")]
        for count in range(min(len(wanted), len(trials)), 0, -1):
            last = trials[-count:]
            if all(t.role == "confirmation" for t in last) and [t.candidate.key for t in last] == [
                c.key for c in wanted[:count]
            ]:
                return count
        return 0

    def _proposal(self, visited: set[str]) -> Candidate | None:
        seen = []
        listed = {c.key for c in self.space.candidates}
        for t in self.trials:
            value, violation = self._verdict(t)
            if t.role in ("confirmation", "guard") or t.candidate.key not in listed:
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
        return not self._is_over(checks=0.0)

    @property
    def _passed_s(self) -> float:
        return self.clock() - self._start

    def _is_over(self, *, checks: float) -> bool:
        """Whether the time of the search, and this share of that of the checks, has passed."""
        search_s, checks_s = self.limits.search_s, self.limits.checks_s
        if search_s is None or checks_s is None:
            return False
        return self._passed_s >= search_s + checks * checks_s


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


def _seconds(trial: TrialRecord) -> float:
    assert trial.estimate is not None
    return trial.estimate.score_seconds
