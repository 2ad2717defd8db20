"""The search: baseline, what is promising, then what the sampler proposes; then the proof.

Reads as the order of events. What to try is in strategy.py and suggest.py, how a candidate is
measured in session.py, what an ending means in objective.py, told.py and refusals.py, which one
wins in choose.py and proof.py, what is kept in storage.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.core.candidate import Candidate
from autotune.core.prediction import Fit, Prediction
from autotune.core.result import Skipped, TrialRecord
from autotune.knobs.catalog import user_candidate
from autotune.knobs.translate import canonical
from autotune.study.choose import may_recover
from autotune.study.foresight import Foresight
from autotune.study.host_memory import beyond_host, skipped_for_host
from autotune.study.idle import same_in_effect
from autotune.study.limits import fastest_late, has_more_time, is_late, slower_than_late
from autotune.study.proof import Proving
from autotune.study.refusals import is_refusal, set_aside, skipped
from autotune.study.session import LEARNED_FROM
from autotune.study.storage import Pruned
from autotune.study.strategy import first_candidates, promising, smallest, tracing_seconds
from autotune.study.suggest import Seen, propose

#: Most promising candidates probed before the sampler, which models nothing earlier, has its turn.
_FIRST = 6


@dataclass
class Search(Proving):
    """One search over an enumerated space; its other fields are the session's.

    Args:
        look_ahead: has candidates traced for so many seconds (0: only takes what was traced
            before) and returns what is expected of them, None when nothing is; None never does.
    """

    look_ahead: Callable[[Sequence[Candidate], float], Foresight | None] | None = None

    def run(self) -> None:
        """Search until the limits are reached or everything was probed; fills ``trials``.

        Raises:
            EnvironmentUnable: the first probes all died of one cause that is not memory.
        """
        self._start = self.clock()
        self.trials.extend(self.store.records())
        queue = [self._candidate_of(params) for params in self.store.reap(self._told)]
        own = canonical(user_candidate(self.facts), self.facts)
        while self._baseline_is_due(own):
            self.probe(own, "baseline")
        self._foresee(own)
        if not self._fits(own):
            beyond = {p.candidate.key for p in self._beyond_host()}
            expected = [p for p in self.predictions() if p.candidate.key not in beyond]
            least = smallest(self.space.candidates, expected)
            if least is not None and least.key not in self._visited():
                self.probe(least, "search")
            if least is not None and self._does_not_fit(least) and self._does_not_fit(own):
                return  # nothing can be expected to fit: say so instead of trying the rest
        if self.foresight is None:
            queue += first_candidates(self.space.candidates, own, self.facts)
        while self._may_go_on():
            passed_over = (*self._slower(), *self._beyond_host())
            done = self._visited() | set(self.gated()) | {p.candidate.key for p in passed_over}
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

    def refused(self) -> list[Skipped]:
        """Return what only running showed to be invalid or too slow, and what is like it."""
        found = skipped(self.space.candidates, self.trials)
        slower = self._slower()
        if slower:
            late = fastest_late(self.predictions(), self.trials)
            assert late is not None
            what = f"predicted to be slower than probe {late.number}"
            found.append(Skipped(what=what, reason=late.report.ending.reason, count=len(slower)))
        if beyond := self._beyond_host():
            found.append(skipped_for_host(beyond, self.facts.host_free_bytes or 0))
        return found

    def _beyond_host(self) -> list[Prediction]:
        """Return what is not probed: it would pin more host memory than is free."""
        visited = self._visited()
        beyond = beyond_host(self.predictions(), self.facts.host_free_bytes)
        return [p for p in beyond if p.candidate.key not in visited]

    def _slower(self) -> list[Prediction]:
        """Return what is not probed: predicted slower than a probe that did not end in time.

        It cannot be the fastest; where time is not what counts, only a limit that the user set is
        taken to be the same for all.
        """
        if self.objective != "throughput" and self.limits.probe_s is None:
            return []
        return slower_than_late(self.predictions(), self.trials)

    def _foresee(self, own: Candidate) -> None:
        """Have the candidates traced where that pays, and take in what was probed already."""
        seconds = tracing_seconds(self.trials, self.limits.trials)
        if self.look_ahead is None:
            return
        everything = {c.key: c for c in (own, *self.space.candidates)}
        # A resumed search knows what it knew, whether it traces more or not.
        seconds = min(seconds or 0.0, max(0.0, self.left_s(checks=0.0)))
        self.foresight = self.look_ahead(list(everything.values()), seconds)
        for trial in self.trials:
            if self.foresight is not None and trial.role in LEARNED_FROM:
                self.foresight.learn(trial.candidate, trial.report)

    def _keep_gated(self) -> None:
        """Tell Optuna what was not probed, with the peak it was predicted to need."""
        gated = [
            Pruned(
                params={n: self._searched(p.candidate, n) for n in self.space.choices},
                key=key,
                predicted_peak_bytes=p.peak_bytes,
            )
            for key, p in self.gated().items()
        ]
        if gated:
            self.store.keep_pruned(gated, self.space.choices)

    def _next(self, done: set[str]) -> Candidate | None:
        """Return the most promising candidate, and in every second turn the sampler's."""
        taken = sum(t.role == "search" for t in self.trials)
        best = promising(self.predictions(), self.budget, self.objective, done)
        if best is not None and (taken < _FIRST or taken % 2 == 0):
            return best
        return self._proposal(done)

    def _proposal(self, visited: set[str]) -> Candidate | None:
        seen = []
        listed = {c.key for c in self.space.candidates}
        for t in self.trials:
            if t.role in ("confirmation", "guard") or t.candidate.key not in listed:
                continue
            known = self._told(t)
            if known is not None:
                params = {n: self._searched(t.candidate, n) for n in self.space.choices}
                seen.append(Seen(params, known))
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
        """Return keys that need not come: measured, disturbed twice, given up, or set aside."""
        times = Counter(t.candidate.key for t in self.trials)
        measured = {
            t.candidate.key
            for t in self.trials
            if not self._may_end_better(t) or times[t.candidate.key] > 1
        }
        aside = set_aside(self.space.candidates, self.trials)
        alike = same_in_effect(self.space.candidates, self.trials)
        return measured | self.store.given_up | set(aside) | alike

    def _disturbed(self) -> list[Candidate]:
        """Return candidates whose probe ended for a reason outside them."""
        return [t.candidate for t in self.trials if t.role == "search" and self._may_end_better(t)]

    def _may_end_better(self, trial: TrialRecord) -> bool:
        """Whether a probe was disturbed, or ended by a limit that the user has raised since."""
        if may_recover(trial):
            return True
        if not is_late(trial) or (self.limits.probe_s is None and trial.role != "baseline"):
            return False
        return has_more_time(trial, self.deadline(trial.candidate, trial.role))

    def _baseline_is_due(self, own: Candidate) -> bool:
        mine = [t for t in self.trials if t.role == "baseline"]
        if not mine or (len(mine) == 1 and may_recover(mine[0])):
            return True
        return has_more_time(mine[-1], self.deadline(own, "baseline"))

    def _fits(self, candidate: Candidate) -> bool:
        return any(t.candidate.key == candidate.key and t.estimate is not None for t in self.trials)

    def _does_not_fit(self, candidate: Candidate) -> bool:
        return any(
            t.candidate.key == candidate.key and t.report.ending.outcome.is_memory
            for t in self.trials
        )

    def _may_go_on(self) -> bool:
        probed = [t for t in self.trials if t.role in ("baseline", "search")]
        # What turns out to be invalid is no trial, up to as many again: probes still take time.
        counted = max(sum(not is_refusal(t) for t in probed), len(probed) - self.limits.trials)
        if counted >= self.limits.trials:
            return False
        return self.left_s(checks=0.0) > 0
